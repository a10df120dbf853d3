package dubbo

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// restore restores the contents of the state file. New calls it.
func (d *Discovery) restore() {
	path := d.settings.Config.StateFile
	if path == "" {
		return
	}
	if !d.settings.CheckOnly {
		if err := sweepState(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.settings.Log.Warn("cannot remove a leftover state file", logFile, path, logError, err)
		}
	}
	s, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		d.moveUnreadable(path, err)
		return
	}
	for _, entry := range s.Published {
		d.restorePublished(entry)
	}
	for _, sub := range s.Subscribed {
		d.restoreSubscribed(sub, s.Saved)
	}
	d.planner.restore(d.subscriber.services())
}

// moveUnreadable renames a state file that cannot be read, so that it is not overwritten and can be
// examined.
func (d *Discovery) moveUnreadable(path string, cause error) {
	const message = "cannot read the state file; nothing is published or subscribed until it is requested again"
	if d.settings.CheckOnly {
		d.settings.Log.Error(message, logFile, path, logError, cause)
		return
	}
	movedTo := path + ".unusable-" + strings.ReplaceAll(time.Now().UTC().Format("20060102T150405.000"), ".", "")
	err := os.Rename(path, movedTo)
	d.settings.Log.Error(message, logFile, path, logError, errors.Join(cause, err), logMovedTo, movedTo)
}

func (d *Discovery) restorePublished(entry stateEntry) {
	sp, s, err := d.restoreRequest(entry.Request, opPublish)
	if err != nil {
		d.settings.Log.Error("cannot restore a published service", logService, entry.Request.Service.Interface, logError, err)
		return
	}
	defer s.release()
	d.publisher.restore(sp, s, entry.Since)
}

func (d *Discovery) restoreSubscribed(sub stateSubscribed, saved time.Time) {
	sp, s, err := d.restoreRequest(sub.Request, opSubscribe)
	if err != nil {
		d.settings.Log.Error("cannot restore a subscription", logService, sub.Request.Service.Interface, logError, err)
		return
	}
	defer s.release()
	snapshot := &registry.Snapshot{Providers: d.validURLs(sub.Providers), Configurators: d.validURLs(sub.Configurators), Routers: d.validURLs(sub.Routers)}
	d.subscriber.restore(sp, s, snapshot, sub.Listed, saved)
}

// restoreRequest validates a request of the state file. The caller releases the session.
func (d *Discovery) restoreRequest(r Request, op operation) (*spec, *session, error) {
	sp, err := d.settings.validate(r, op)
	if err != nil {
		return nil, nil, err
	}
	s, _, err := d.sessions.acquire(sp.session)
	return sp, s, err
}

func (d *Discovery) validURLs(stored []stateURL) (urls []registry.URL) {
	urls = slices.Grow(urls, len(stored))
	for _, u := range stored {
		if u.problem != nil {
			d.settings.Log.Warn("invalid URL in the state file", logError, u.problem)
			continue
		}
		urls = append(urls, u.URL)
	}
	return urls
}

// state returns the content of the state file, sorted by time.
func (d *Discovery) state() *state {
	s := &state{Published: d.publisher.stateEntries()}
	var snapshots []registry.Snapshot
	s.Subscribed, snapshots = d.subscriber.stateEntries()
	for i, snapshot := range snapshots {
		sub := &s.Subscribed[i]
		sub.Providers, sub.Configurators, sub.Routers = stateURLs(snapshot.Providers), stateURLs(snapshot.Configurators), stateURLs(snapshot.Routers)
	}
	slices.SortFunc(s.Published, func(a, b stateEntry) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(s.Subscribed, func(a, b stateSubscribed) int { return a.Since.Compare(b.Since) })
	return s
}
