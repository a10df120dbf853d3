package dubbo

import "context"

// goal is a version of a registration that a call of the API waits for.
type goal struct {
	registration *registration
	version      int
}

// goal returns a goal for the current version; later changes do not affect it.
func (reg *registration) goal() goal {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return goal{reg, reg.version}
}

// await waits until the registry has reached the goal or rejected it, but at most for
// registryTimeout. The error is errClosing if ended is closed before that.
func (g goal) await(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, registryTimeout, errNoResponse)
	defer cancel()
	reg := g.registration
	for {
		reg.mu.Lock()
		reconciled, err, changed := reg.isReconciled(), reg.err, reg.changed
		met := reconciled || reg.confirmedVersion >= g.version
		reg.mu.Unlock()
		switch {
		case met && !reconciled:
			return nil // reg.err is the result of a later change
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
func goalsOf(registrations []*registration) []goal {
	goals := make([]goal, len(registrations))
	for i, reg := range registrations {
		goals[i] = reg.goal()
	}
	return goals
}
