"""What commands print, and the envelope around answers for programs."""
