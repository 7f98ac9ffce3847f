"""Access to the site: request checks, CSRF protection, authentication, sessions and login."""
