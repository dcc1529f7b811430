package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// apiAddresses is the key in etcd below which every API server keeps its address alive.
var apiAddresses = flavour.Name("/*/apiaddresses/")

func (s *server) socket() string { return s.data.Server("supervisor.sock") }

// startSupervisor answers joining nodes at the port for that. Where it is the API server's, and this server has one, the supervisor is
// behind that.
func (s *server) startSupervisor(ctx context.Context) error {
	now := s.tokens.Load()
	front := &supervisor.Server{
		CACerts: s.auth.server.PEM, ServerToken: now.server, AgentToken: now.agent, Settings: s.settings(),
		Bootstrap: s.bootstrap, Sign: s.sign, APIServers: s.apiServers, Etcd: s.etcdInfo,
		Admin: map[string]http.HandlerFunc{
			"POST " + snapshot.Path:                  s.answerSnapshot,
			"GET " + supervisor.EncryptionStatusPath: s.answerEncryptionStatus,
			"PUT " + supervisor.EncryptionConfigPath: s.answerEncryption,
			"PUT " + supervisor.TokenPath:            s.answerToken,
			"PUT " + supervisor.AuthoritiesPath:      s.answerAuthorities,
		},
	}
	s.front = front
	var listener net.Listener
	var err error
	if s.hasAPI() && s.SupervisorPort == s.HTTPSPort {
		front.Proxied = true
		_ = os.Remove(s.socket())
		if listener, err = net.Listen("unix", s.socket()); err == nil {
			err = os.Chmod(s.socket(), 0o600)
		}
	} else {
		var cert tls.Certificate
		if cert, err = tls.LoadX509KeyPair(s.data.TLS("serving-kube-apiserver.crt"), s.data.TLS("serving-kube-apiserver.key")); err == nil {
			listener, err = tls.Listen("tcp", ":"+strconv.Itoa(s.SupervisorPort), &tls.Config{Certificates: []tls.Certificate{cert}})
		}
	}
	if err != nil {
		return err
	}
	h := &http.Server{Handler: front.Handler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = h.Close() })
	go func() { _ = h.Serve(listener) }()
	return nil
}

func (s *server) settings() supervisor.Settings {
	dns := s.ClusterDNS
	if len(dns) == 0 {
		dns = []string{dnsAddress(s.ServiceCIDR[0])}
	}
	return supervisor.Settings{
		ClusterCIDR: s.ClusterCIDR, ServiceCIDR: s.ServiceCIDR, ClusterDNS: dns, ClusterDomain: s.ClusterDomain,
		DisableKubeProxy: s.DisableKubeProxy, DisableCloud: s.DisableCloudController, SystemDefaultRegistry: s.SystemDefaultRegistry,
		CNI: s.CNI,
	}
}

// publishAddress keeps the address of this server's API in etcd for as long as this server lives.
func (s *server) publishAddress(ctx context.Context) error {
	c, err := s.localEtcd()
	if err != nil {
		return err
	}
	publish := func() error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		lease, err := c.Grant(ctx, 30)
		if err != nil {
			return fmt.Errorf("publishing this server's address: %w", err)
		}
		if _, err := c.Put(ctx, apiAddresses+s.NodeName, s.address(), clientv3.WithLease(lease.ID)); err != nil {
			return fmt.Errorf("publishing this server's address: %w", err)
		}
		return nil
	}
	if err := publish(); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Second):
			}
			if err := publish(); err != nil && ctx.Err() == nil {
				s.log.Warn("Cannot keep this server's address published", "error", err)
			}
		}
	}()
	return nil
}

// apiServers are the addresses of all API servers of the cluster.
func (s *server) apiServers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := s.localEtcd()
	if err != nil {
		return nil, err
	}
	got, err := c.Get(ctx, apiAddresses, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of API servers: %w", err)
	}
	var out []string
	for _, kv := range got.Kvs {
		out = append(out, string(kv.Value))
	}
	slices.Sort(out)
	return out, nil
}
