"""The command line: parse, call, print. Nothing else imports this package."""
