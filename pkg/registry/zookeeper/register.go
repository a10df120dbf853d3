package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/weft-proxy/weft/pkg/registry"
)

// maxLostConnections is the number of lost connections during one request after which its caller
// gets an error: the request may be the reason why the server closes them.
const maxLostConnections = 3

// errSuperseded is the error of a request that a later request replaced.
var errSuperseded = errors.New("superseded by a later request")

// registration is the desired state of one znode of this process: it exists, or it does not. The
// loop owns it.
type registration struct {
	path        string
	url         registry.URL
	instance    *registeredInstance // nil: the znode is a URL, not an instance
	desired     bool                // the znode should exist
	confirmed   bool                // the server has confirmed the desired state in this session
	reconciling bool                // a worker reconciles the registration, or a job for that is queued
	backingOff  bool                // a timer will retry
	// failures is the number of consecutive failures; failureLogged means that a rejection was
	// logged since the last success.
	failures      int
	failureLogged bool
	waiters       []chan error // capacity 1
}

// Register registers a URL: see registry.Registry. It rejects a URL that cannot be a znode.
func (r *Registry) Register(ctx context.Context, u registry.URL) error {
	return r.setDesired(ctx, u, true)
}

// Unregister reverts Register: see registry.Registry. While the registry is unavailable, the
// removal stays pending, so that the znode does not stay until the session ends.
func (r *Registry) Unregister(ctx context.Context, u registry.URL) error {
	return r.setDesired(ctx, u, false)
}

func (r *Registry) setDesired(ctx context.Context, u registry.URL, desired bool) error {
	path, err := r.layout.urlNode(u)
	if err != nil {
		return err
	}
	return r.await(ctx, u.Service().String(), func(done chan error) { r.noteDesired(path, u, desired, done) })
}

// await runs record on the loop, and waits for the result, which record sends to done now or later.
func (r *Registry) await(ctx context.Context, name string, record func(done chan error)) (err error) {
	done := make(chan error, 1)
	r.callbacks.post(func() { record(done) })
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
		if state := r.State(); !state.Connected && state.LastError != "" {
			err = fmt.Errorf("%w: %s", err, state.LastError)
		}
	case <-r.ended:
		err = ErrClosed
	}
	if err != nil {
		return fmt.Errorf("%s at ZooKeeper %s: %w", name, r.options.Address, err)
	}
	return nil
}

// noteDesired records a desired state and starts to reconcile it.
func (r *Registry) noteDesired(path string, u registry.URL, desired bool, done chan error) {
	e := r.entries[path]
	switch {
	case e == nil && !desired:
		done <- nil
		return
	case e == nil:
		e = &registration{path: path, url: u, desired: true}
		r.addRegistration(e)
	case e.desired != desired:
		e.setDesired(desired)
	}
	r.reconcile(e, done)
}

// setDesired changes the desired state. Callers that wait for the previous one get errSuperseded.
func (e *registration) setDesired(desired bool) {
	e.completeWaiters(errSuperseded)
	e.desired, e.confirmed, e.backingOff, e.failures = desired, false, false, 0
}

// reconcile starts to reconcile e, unless e is confirmed. done gets the result.
func (r *Registry) reconcile(e *registration, done chan error) {
	if e.confirmed {
		done <- nil
		return
	}
	e.waiters = append(e.waiters, done)
	r.startReconcile(e)
}

// markUnconfirmed makes the next reconcile compare e with the server.
func (e *registration) markUnconfirmed() {
	e.confirmed = false
	if e.instance != nil {
		e.instance.recheckMappings = true
	}
}

// desiredState is an immutable copy of the desired state of a registration. finishReconcile
// compares the copy with the current desired state.
type desiredState struct {
	desired  bool
	instance *registry.InstanceRegistration // nil: the registration is a URL
}

func (e *registration) desiredState() desiredState {
	t := desiredState{desired: e.desired}
	if e.instance != nil {
		t.instance = e.instance.InstanceRegistration
	}
	return t
}

// addRegistration stores a registration. For a consumer it schedules a refresh of the interface,
// because the rules of the consumer's application now apply.
func (r *Registry) addRegistration(e *registration) {
	r.entries[e.path] = e
	if e.url.Category() != registry.Consumers {
		return
	}
	name := e.url.Service().Interface
	if r.consumers[name] == nil {
		r.consumers[name] = map[*registration]struct{}{}
	}
	r.consumers[name][e] = struct{}{}
	r.markStale(name)
}

// removeRegistration reverts addRegistration.
func (r *Registry) removeRegistration(e *registration) {
	delete(r.entries, e.path)
	if e.url.Category() != registry.Consumers {
		return
	}
	name := e.url.Service().Interface
	delete(r.consumers[name], e)
	if len(r.consumers[name]) == 0 {
		delete(r.consumers, name)
	}
	r.markStale(name)
}

// completeWaiters sends err to all callers that wait for e.
func (e *registration) completeWaiters(err error) {
	for _, waiter := range e.waiters {
		waiter <- err
	}
	e.waiters = nil
}

// startReconcile queues e for a worker, unless e is confirmed, already queued or backing off. It
// does nothing while requests cannot be sent; startRequests calls it again.
func (r *Registry) startReconcile(e *registration) {
	if e.confirmed || e.reconciling || e.backingOff || !r.session.ready || r.entries[e.path] != e {
		return
	}
	e.reconciling = true
	r.enqueue(func() work {
		epoch, goal, node := r.session.epoch, e.desiredState(), znodeWriter{session: r.session.id, earlierSessions: r.session.earlierSessions, path: e.path, acl: r.acl}
		ensure := znodeWriter.ensure
		if e.instance != nil {
			ensure = e.instance.registerFunc(r.layout)
		}
		return func(c *client) func() {
			node.conn = c.conn
			var err error
			if goal.desired {
				err = ensure(node)
			} else {
				err = node.remove()
			}
			return func() { r.finishReconcile(e, epoch, goal, err) }
		}
	})
}

// finishReconcile processes the result of a worker that began in epoch and reconciled goal. If the
// session or the desired state has changed since, it starts again.
func (r *Registry) finishReconcile(e *registration, epoch int, goal desiredState, err error) {
	e.reconciling = false
	switch {
	case epoch != r.session.epoch || goal != e.desiredState():
	case err == nil:
		e.confirmed, e.failures, e.failureLogged = true, 0, false
		e.completeWaiters(nil)
		if !e.desired {
			r.removeRegistration(e)
		}
		return
	default:
		r.scheduleRetry(e, err)
		return
	}
	r.startReconcile(e)
}

// scheduleRetry retries e after a backoff. Callers that wait for e get err, unless it is one of the
// first lost connections.
func (r *Registry) scheduleRetry(e *registration, err error) {
	e.failures++
	switch lost := isLost(err); {
	case lost && e.failures < maxLostConnections:
	case lost:
		e.completeWaiters(fmt.Errorf("the connection was lost %d times during the request: %w", e.failures, err))
		if !e.desired {
			r.removeRegistration(e) // the znode, if it exists, ends with the session
			return
		}
	default:
		if !e.failureLogged {
			e.failureLogged = true
			r.log.Warn("ZooKeeper rejected a registration", "service", e.url.Service().String(), "wanted", e.desired, "error", err)
		}
		r.stateTracker.Update(func(s *registry.State) { s.LastError = e.url.Service().String() + ": " + err.Error() })
		e.completeWaiters(err)
	}
	e.backingOff = true
	r.afterFunc(backoff(e.failures), func() {
		e.backingOff = false
		r.startReconcile(e)
	})
}

// znodeWriter writes one znode. Its methods run on a worker; some write persistent znodes.
type znodeWriter struct {
	conn            *zk.Conn
	session         int64
	earlierSessions []int64 // earlier sessions of this process; immutable
	path            string
	acl             []zk.ACL
	data            []byte // data of the znode; nil: ensure ignores the data
}

// ensure makes sure that the znode exists and belongs to this session. A znode of another session,
// usually an earlier one of this process that the server has not ended yet, would disappear with
// that session. ensure replaces it in one transaction, so that no consumer sees it missing.
func (n znodeWriter) ensure() error {
	const attempts = 5
	for range attempts {
		exists, stat, err := n.conn.Exists(n.path)
		switch {
		case err != nil:
			return err
		case exists && stat.EphemeralOwner == n.session && n.data == nil:
			return nil
		case exists && stat.EphemeralOwner == n.session:
			err = n.write()
		case exists:
			err = n.replace(stat.Version)
		default:
			err = n.create()
		}
		// These errors mean a concurrent change, or an earlier request of this process whose
		// response was lost with the connection.
		if !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
	return errors.New("too many concurrent changes by other clients")
}

func (n znodeWriter) create() error {
	_, err := n.conn.Create(n.path, n.data, zk.FlagEphemeral, n.acl)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if err := n.createParents(parent(n.path)); err != nil {
		return err
	}
	_, err = n.conn.Create(n.path, n.data, zk.FlagEphemeral, n.acl)
	return err
}

// write updates the data of an existing znode if it differs.
func (n znodeWriter) write() error {
	text, stat, err := n.conn.Get(n.path)
	if err != nil || bytes.Equal(text, n.data) {
		return err
	}
	_, err = n.conn.Set(n.path, n.data, stat.Version)
	return err
}

// createParents creates a persistent znode and its missing parents. It tries the lowest znode
// first, because permission to create below a znode does not imply permission above it.
func (n znodeWriter) createParents(path string) error {
	_, err := n.conn.Create(path, nil, 0, n.acl)
	if errors.Is(err, zk.ErrNoNode) && parent(path) != "/" {
		if err := n.createParents(parent(path)); err != nil {
			return err
		}
		_, err = n.conn.Create(path, nil, 0, n.acl)
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

func (n znodeWriter) replace(version int32) error {
	_, err := n.conn.Multi(
		&zk.DeleteRequest{Path: n.path, Version: version},
		&zk.CreateRequest{Path: n.path, Data: n.data, Acl: n.acl, Flags: zk.FlagEphemeral})
	return err
}

// remove deletes the znode if it belongs to this session, or to an earlier session of this process
// that the server has not ended yet.
func (n znodeWriter) remove() error {
	exists, stat, err := n.conn.Exists(n.path)
	if err != nil || !exists || stat.EphemeralOwner != n.session && !slices.Contains(n.earlierSessions, stat.EphemeralOwner) {
		return err
	}
	if err := n.conn.Delete(n.path, stat.Version); !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}
