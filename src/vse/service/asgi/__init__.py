"""What happens around every request, as plain ASGI: each layer is one file, and calls the next."""
