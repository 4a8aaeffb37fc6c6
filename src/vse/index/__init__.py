"""Collections of photographs and clips: made from folders, kept safely, searched by meaning. No torch."""
