"""What each stage does, step by step. A step may run twice: whatever it makes outside, it looks for first."""
