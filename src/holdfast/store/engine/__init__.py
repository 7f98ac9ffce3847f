"""Operations as generators of named statements, and the backends that run them."""
