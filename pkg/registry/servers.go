package registry

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// ParseServers parses "host:port,host:port", the part of Options.Address that several types share.
// port is the default port; an IPv6 address is in brackets. ParseServers returns each server in the
// notation of net.Dial.
func ParseServers(list, port string) ([]string, error) {
	var servers []string
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		host, own, err := net.SplitHostPort(text)
		var wrong *net.AddrError
		switch {
		case errors.As(err, &wrong) && wrong.Err == "missing port in address":
			host, own = strings.Trim(text, "[]"), port
		case err != nil:
			return nil, err
		}
		if host == "" || own == "" {
			return nil, fmt.Errorf("%q is not a valid host:port", text)
		}
		servers = append(servers, net.JoinHostPort(host, own))
	}
	return servers, nil
}
