package main

import (
	"log/slog"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/network/tcpproxy"
	"github.com/weft-proxy/weft/pkg/filter/stream/adaptiveconcurrency"
	"github.com/weft-proxy/weft/pkg/filter/stream/basicauth"
	"github.com/weft-proxy/weft/pkg/filter/stream/buffer"
	"github.com/weft-proxy/weft/pkg/filter/stream/cdnloop"
	"github.com/weft-proxy/weft/pkg/filter/stream/compressor"
	"github.com/weft-proxy/weft/pkg/filter/stream/cors"
	"github.com/weft-proxy/weft/pkg/filter/stream/csrf"
	"github.com/weft-proxy/weft/pkg/filter/stream/decompressor"
	"github.com/weft-proxy/weft/pkg/filter/stream/dubbostream"
	"github.com/weft-proxy/weft/pkg/filter/stream/extauthz"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/faulttolerance"
	"github.com/weft-proxy/weft/pkg/filter/stream/flowcontrol"
	"github.com/weft-proxy/weft/pkg/filter/stream/gzip"
	"github.com/weft-proxy/weft/pkg/filter/stream/headermutation"
	"github.com/weft-proxy/weft/pkg/filter/stream/headertometadata"
	"github.com/weft-proxy/weft/pkg/filter/stream/healthcheck"
	"github.com/weft-proxy/weft/pkg/filter/stream/ipaccess"
	"github.com/weft-proxy/weft/pkg/filter/stream/istiostats"
	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
	"github.com/weft-proxy/weft/pkg/filter/stream/localratelimit"
	"github.com/weft-proxy/weft/pkg/filter/stream/mirror"
	"github.com/weft-proxy/weft/pkg/filter/stream/payloadlimit"
	"github.com/weft-proxy/weft/pkg/filter/stream/peermetadata"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
	"github.com/weft-proxy/weft/pkg/network"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/bolt"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/dubbo"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/registry"
	localregistry "github.com/weft-proxy/weft/pkg/registry/memory"
	"github.com/weft-proxy/weft/pkg/registry/nacos"
	"github.com/weft-proxy/weft/pkg/registry/zookeeper"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/stream/http1"
	"github.com/weft-proxy/weft/pkg/stream/http2"
	"github.com/weft-proxy/weft/pkg/stream/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// This file lists the protocols, filters and policies of the binary. A new one needs a directory
// and a line here.

// protocols returns all protocols, in the order in which "Auto" detects them. The engines may be
// nil if the caller only reads names and detects protocols.
func protocols(h2 *http2.Engine, rpc *xprotocol.Engine) []stream.Protocol {
	return []stream.Protocol{
		http1.Protocol(),
		h2.Protocol(),
		rpc.Protocol(dubbo.Codec{}),
		rpc.Protocol(bolt.V1()),
		rpc.Protocol(bolt.V2()),
	}
}

// heartbeats returns the codecs of the protocols whose heartbeats can check hosts.
func heartbeats() map[config.Protocol]codec.Codec {
	return map[config.Protocol]codec.Codec{
		config.Dubbo:  dubbo.Codec{},
		config.Bolt:   bolt.V1(),
		config.BoltV2: bolt.V2(),
	}
}

func streamFilters() []filter.StreamFilterFactory {
	return []filter.StreamFilterFactory{
		adaptiveconcurrency.Factory(),
		basicauth.Factory(),
		buffer.Factory(),
		cdnloop.Factory(),
		compressor.Factory(),
		cors.Factory(),
		csrf.Factory(),
		decompressor.Factory(),
		dubbostream.Factory(),
		extauthz.Factory(),
		fault.Factory(),
		faulttolerance.Factory(),
		flowcontrol.Factory(),
		gzip.Factory(),
		headermutation.Factory(),
		headertometadata.Factory(),
		healthcheck.Factory(),
		ipaccess.Factory(),
		istiostats.Factory(),
		localratelimit.Factory(),
		jwtauthn.Factory(),
		mirror.Factory(),
		payloadlimit.Factory(),
		peermetadata.Factory(),
		rbac.Factory(),
	}
}

// connectionFilters returns the network filters that allow, deny or observe connections.
func connectionFilters() []filter.ConnectionFilterFactory {
	return []filter.ConnectionFilterFactory{
		istiostats.ConnectionFactory(),
		rbac.ConnectionFactory(),
	}
}

func tcpProxy(cfg config.TCPProxy, forwarder *proxy.TCPForwarder, log *slog.Logger) network.Handler {
	return tcpproxy.New(cfg, forwarder, log)
}

// registries returns the functions that open a registry for Dubbo services, by the type of
// registry.
func registries() map[string]registry.OpenFunc {
	return map[string]registry.OpenFunc{
		"memory":    localregistry.NewServer().Open,
		"nacos":     nacos.New,
		"zookeeper": zookeeper.New,
	}
}

func policies() map[config.LBPolicy]balance.NewFunc {
	return map[config.LBPolicy]balance.NewFunc{
		config.RoundRobin:         balance.RoundRobin,
		config.WeightedRoundRobin: balance.WeightedRoundRobin,
		config.Random:             balance.Random,
		config.LeastRequest:       balance.LeastRequest,
		config.LeastConnection:    balance.LeastConnection,
		config.PeakEWMA:           balance.PeakEWMA,
		config.RingHash:           balance.RingHash,
		config.Maglev:             balance.Maglev,
		config.RequestRoundRobin:  balance.RequestRoundRobin,
	}
}
