"""What tests share: references, spies, tallies."""
