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
	if err := sweepState(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.settings.Log.Warn("cannot remove a leftover state file", logFile, path, logError, err)
	}
	s, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		d.moveUnreadable(path, err)
		return
	}
	for _, p := range s.Published {
		d.restorePublished(p)
	}
	for _, f := range s.Subscribed {
		d.restoreSubscribed(f, s.Saved)
	}
	d.planner.restore(d.subscriber.services())
}

// moveUnreadable renames a state file that cannot be read, so that it is not overwritten and can be
// examined.
func (d *Discovery) moveUnreadable(path string, why error) {
	aside := path + ".unusable-" + strings.ReplaceAll(time.Now().UTC().Format("20060102T150405.000"), ".", "")
	err := os.Rename(path, aside)
	d.settings.Log.Error("cannot read the state file; nothing is published or subscribed until it is requested again",
		logFile, path, logError, errors.Join(why, err), logAside, aside)
}

func (d *Discovery) restorePublished(p stateEntry) {
	w, s, err := d.restoreRequest(p.Request, opPublish)
	if err != nil {
		d.settings.Log.Error("cannot restore a published service", logService, p.Request.Service.Interface, logError, err)
		return
	}
	defer s.release()
	d.publisher.restore(w, s, p.Since)
}

func (d *Discovery) restoreSubscribed(f stateSubscribed, saved time.Time) {
	w, s, err := d.restoreRequest(f.Request, opSubscribe)
	if err != nil {
		d.settings.Log.Error("cannot restore a subscription", logService, f.Request.Service.Interface, logError, err)
		return
	}
	defer s.release()
	v := &registry.Snapshot{Providers: d.validURLs(f.Providers), Configurators: d.validURLs(f.Configurators), Routers: d.validURLs(f.Routers)}
	d.subscriber.restore(w, s, v, f.Listed, saved)
}

// restoreRequest validates a request of the state file. The caller releases the session.
func (d *Discovery) restoreRequest(r Request, as operation) (*spec, *session, error) {
	w, err := d.settings.validate(r, as)
	if err != nil {
		return nil, nil, err
	}
	s, _, err := d.sessions.acquire(w.session)
	return w, s, err
}

func (d *Discovery) validURLs(all []stateURL) (urls []registry.URL) {
	urls = slices.Grow(urls, len(all))
	for _, u := range all {
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
	for i, v := range snapshots {
		f := &s.Subscribed[i]
		f.Providers, f.Configurators, f.Routers = stateURLs(v.Providers), stateURLs(v.Configurators), stateURLs(v.Routers)
	}
	slices.SortFunc(s.Published, func(a, b stateEntry) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(s.Subscribed, func(a, b stateSubscribed) int { return a.Since.Compare(b.Since) })
	return s
}
