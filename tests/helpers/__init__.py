"""What tests share: references, spies, specs."""
