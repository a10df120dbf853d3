package registry

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// ParseServers reads "host:port,host:port", the part of Options.Address that several types
// share. A port that is left out is the one given; an IPv6 address is in brackets. Each
// server is returned as net.Dial takes it.
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
			return nil, fmt.Errorf("%q is no host:port", text)
		}
		servers = append(servers, net.JoinHostPort(host, own))
	}
	return servers, nil
}
