"""Writers of ONNX: a module for each family of ops; ``registry`` has the table of them all."""
