package zookeeper

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/weft-proxy/weft/pkg/registry"
)

const (
	defaultRoot     = "/dubbo"
	defaultPort     = "2181"
	defaultServices = "/services"
	// configGroup is the group of Dubbo's configuration center that contains rules.
	configGroup = "dubbo"
)

// parseAddress parses "host:port,host:port/chroot". The default port is 2181. chroot is "", or
// begins with a slash and does not end with one.
func parseAddress(address string) (servers []string, chroot string, err error) {
	hosts, rest, hasChroot := strings.Cut(address, "/")
	if servers, err = registry.ParseServers(hosts, defaultPort); err != nil {
		return nil, "", fmt.Errorf("the address %q: %w", address, err)
	}
	if hasChroot {
		if chroot, err = cleanPath(rest); err != nil {
			return nil, "", fmt.Errorf("the address %q: %w", address, err)
		}
	}
	return servers, chroot, nil
}

// cleanPath returns a path in the form "/a/b"; "" for the root.
func cleanPath(path string) (string, error) {
	path = strings.Trim(path, "/")
	if path == "" {
		return "", nil
	}
	for element := range strings.SplitSeq(path, "/") {
		if err := checkElement(element); err != nil {
			return "", fmt.Errorf("%q is not a valid path: %w", path, err)
		}
	}
	return "/" + path, nil
}

// checkElement returns an error if a name is not a valid path element.
func checkElement(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case name == ".", name == "..":
		return fmt.Errorf("%q is not a valid name", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r < ' ' || r >= 0x7f && r <= 0x9f }):
		return fmt.Errorf("the name %q contains a slash or a control character", name)
	}
	return nil
}

// layout returns the paths of znodes, including the chroot.
type layout struct {
	root     string // ancestor of the znodes of interfaces, rules, mappings and metadata
	services string // parent of the applications, which contain the instances
}

// newLayout returns the layout below a chroot. Dubbo 3 stores instances in /services, or in the
// root if the root is not the default.
func newLayout(chroot, root string) (layout, error) {
	if root == "" {
		root = defaultRoot
	}
	dir, err := cleanPath(root)
	if err != nil {
		return layout{}, fmt.Errorf("the root: %w", err)
	}
	l := layout{root: chroot + dir, services: chroot + dir}
	if dir == defaultRoot {
		l.services = chroot + defaultServices
	}
	return l, nil
}

// escape encodes a name like java.net.URLEncoder.
func escape(name string) string {
	return strings.NewReplacer("%2A", "*", "~", "%7E").Replace(url.QueryEscape(name))
}

// category returns the parent znode of the URLs of an interface in one category.
func (l layout) category(name, category string) string {
	return l.root + "/" + escape(name) + "/" + escape(category)
}

// urlNode returns the znode of a URL.
func (l layout) urlNode(u registry.URL) (string, error) {
	name, category := u.Service().Interface, u.Category()
	if err := checkElement(escape(name)); err != nil {
		return "", fmt.Errorf("the interface of %s: %w", u, err)
	}
	if err := checkElement(escape(category)); err != nil {
		return "", fmt.Errorf("the category of %s: %w", u, err)
	}
	text := u.String()
	if len(text) > registry.MaxURL {
		return "", fmt.Errorf("a URL of %s has %d bytes; the maximum is %d", name, len(text), registry.MaxURL)
	}
	return l.category(name, category) + "/" + u.Encoded(), nil
}

// mapping returns the znode with the applications that provide an interface.
func (l layout) mapping(name string) string { return l.root + "/mapping/" + name }

// rules returns the parent znode of Dubbo's rules.
func (l layout) rules() string { return l.root + "/config/" + configGroup }

// application returns the parent znode of an application's instances.
func (l layout) application(name string) string { return l.services + "/" + name }

// instance returns the znode of an instance.
func (l layout) instance(i *registry.Instance) string {
	return l.application(i.Application) + "/" + i.Name()
}

// metadata returns the znode of the metadata of a revision.
func (l layout) metadata(application, revision string) string {
	return l.root + "/metadata/" + application + "/" + revision
}

// parent returns the parent of a znode.
func parent(node string) string { return path.Dir(node) }
