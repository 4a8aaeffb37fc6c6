"""The systems that the paper compares VSE∞ with: set encoders, scores of pairs, cross-encoders."""
