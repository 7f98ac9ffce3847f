"""What operators see (views), what they change (actions), and the doctor."""
