"""Use vse from other libraries: sentence-transformers, timm, transformers, LangChain, LlamaIndex, MTEB, MCP.

Each module needs the library that it adapts to, and imports nothing of the others.
"""
