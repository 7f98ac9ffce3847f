"""What operators see (views) and do (actions), and the doctor."""
