"""What ONNX, ATen and lax mean alike, said once: each importer maps its own words and attributes to these."""
