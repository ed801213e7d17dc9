"""Durable execution: the only importer of dbos. One short workflow a stage; engine.py starts and stops them."""
