"""What the screens share: frame, wording, signs, figures and the pieces that several of them draw."""
