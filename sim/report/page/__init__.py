"""A finished run as one HTML page: `page.run_page`."""
