package dubbo

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// URL parameters that Service.Parameters must not set.
const (
	parameterApplication = "application"
	parameterMethods     = "methods"
	parameterSide        = "side"
	parameterTimestamp   = "timestamp"
	parameterProcess     = "pid"
	parameterDubbo       = "dubbo"
)

// protocolVersion is the version of Dubbo's protocol, the value of parameterDubbo.
const protocolVersion = "2.0.2"

// providerURL returns the URL of a service that this machine provides since the given time. It
// contains no pid, so that it is the same after a restart with a state file: the registry has one
// entry for it even if the session of the killed process has not expired, and consumers see no
// change.
func (s *settings) providerURL(sp *spec, since time.Time) registry.URL {
	port := s.Config.ServerPort
	if n, err := strconv.ParseUint(sp.Service.Port, 10, 16); err == nil && port == 0 {
		port = uint16(n)
	}
	return s.buildURL(sp, since, registry.URL{Protocol: "dubbo", Host: s.host, Port: port}, map[string]string{
		"anyhost":     "true",
		"dynamic":     "true",
		"generic":     "false",
		parameterSide: "provider",
	}).With(map[string]string{parameterRegisterMode: ""})
}

// consumerURL returns the URL of a consumer of a service.
func (s *settings) consumerURL(sp *spec, since time.Time) registry.URL {
	return s.buildURL(sp, since, registry.URL{Protocol: "consumer", Host: s.host}, map[string]string{
		registry.ParameterCategory: registry.Consumers,
		"check":                    "false",
		parameterSide:              "consumer",
		parameterProcess:           strconv.Itoa(os.Getpid()), // distinguishes processes: the URL has no port
	})
}

func (s *settings) buildURL(sp *spec, since time.Time, u registry.URL, extra map[string]string) registry.URL {
	svc := &sp.Service
	u.Path = svc.Interface
	return u.With(extra).With(map[string]string{
		parameterDubbo:              protocolVersion,
		parameterTimestamp:          strconv.FormatInt(since.UnixMilli(), 10),
		parameterApplication:        cmp.Or(svc.Name, s.Config.Application),
		registry.ParameterInterface: svc.Interface,
		registry.ParameterGroup:     svc.Group,
		registry.ParameterVersion:   svc.Version,
		parameterMethods:            strings.Join(svc.Methods, ","),
	}).With(svc.Parameters)
}

// timestamps generates the timestamps of URLs, so that a new registration differs from one that is
// being unregistered. The caller synchronizes calls.
type timestamps struct{ last time.Time }

// next returns the current time, at least a millisecond later than the last result.
func (s *timestamps) next() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	if !now.After(s.last) {
		now = s.last.Add(time.Millisecond)
	}
	s.last = now
	return now
}

// skip makes next return only times after t, unless t is in the future.
func (s *timestamps) skip(t time.Time) {
	if t.After(s.last) && t.Before(time.Now()) {
		s.last = t
	}
}
