package compare

// Named is a difference with a reason.
type Named struct {
	Name   string
	Reason string
	// matches reports whether a difference of a case is this one.
	matches func(r *Result, d Difference) bool
}

// AllNamed returns the named differences. The first one that matches applies.
func AllNamed() []Named {
	return nil
}
