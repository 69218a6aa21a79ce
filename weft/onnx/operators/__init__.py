"""The handlers of ONNX operators, one file a topic; each registers itself when it is imported."""
