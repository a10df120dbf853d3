package dubbo

import "context"

// goal is a version of a registration that a call of the API waits for.
type goal struct {
	registration *registration
	version      int
}

// goal returns a goal for the current version; later changes do not affect it.
func (e *registration) goal() goal {
	e.mu.Lock()
	defer e.mu.Unlock()
	return goal{e, e.version}
}

// await waits until the registry is in the state of the goal, or has rejected it, at most
// registryTimeout. The error is errClosing if ended is closed before that.
func (g goal) await(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, registryTimeout, errNoResponse)
	defer cancel()
	e := g.registration
	for {
		e.mu.Lock()
		settled, err, changed := e.settled(), e.err, e.changed
		met := settled || e.confirmed >= g.version
		e.mu.Unlock()
		switch {
		case met && !settled:
			return nil // the error concerns a later change
		case met || err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			return errClosing
		}
	}
}

// goalsOf returns goals for the current versions.
func goalsOf(all []*registration) []goal {
	goals := make([]goal, len(all))
	for i, e := range all {
		goals[i] = e.goal()
	}
	return goals
}
