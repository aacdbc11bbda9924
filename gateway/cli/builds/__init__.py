"""`pledger builds`: run the stages of a build file, see why they ran, and what runs did."""
