// Package server runs what a server node has beyond an agent: etcd, the Kubernetes control plane, the supervisor that
// other nodes join at, and the small controllers that k3s brings along. The components are processes of their own.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/e2e/distro/internal/agent"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/notify"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// server is one server node while it runs.
type server struct {
	config.Config
	log  *slog.Logger
	data layout.Data
	set  *child.Set
	ips  []string // of this node, at least one

	tokens atomic.Pointer[tokens]
	front  *supervisor.Server // once the supervisor has started
	// upstream is the server this one joined at; nil on the first.
	upstream *supervisor.Client
	auth     *authorities
	node     agent.Node // of a control plane that runs as static pods; see startRuntime
	admin    kubernetes.Interface
	failed   chan error

	etcdMu sync.Mutex
	etcd   *clientv3.Client // see localEtcd
	// etcdAnswered is true once this server's etcd has been up.
	etcdAnswered atomic.Bool

	// apiAnswered is true once the API server of this server has been up.
	apiAnswered  atomic.Bool
	encryptionMu sync.Mutex // held while keys change

	// snapshotMu is held while a snapshot is taken, syncMu while ETCDSnapshotFile objects are written.
	snapshotMu, syncMu sync.Mutex
	// snapshotsBehind has something in it when the ETCDSnapshotFile objects are not as the files are.
	snapshotsBehind chan struct{}
	faultsMu        sync.Mutex
	faults          []snapshot.File   // that could not be taken
	takenWith       map[string]string // hash of the token by the name of a snapshot that this process took; held by faultsMu
	buckets         openBuckets
}

func newServer(log *slog.Logger, c config.Config) *server {
	return &server{Config: c, log: log, data: layout.Data(c.DataDir), set: child.NewSet(log), failed: make(chan error, 2),
		snapshotsBehind: make(chan struct{}, 1), takenWith: map[string]string{}}
}

// Run runs a server until ctx ends or one of its components fails.
func Run(ctx context.Context, log *slog.Logger, c config.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newServer(log, c)
	defer s.set.Stop()
	go func() {
		if err := s.phases(ctx); err != nil {
			s.failed <- err
		}
	}()
	select {
	case <-ctx.Done():
		log.Info("Stopping")
		return nil
	case err := <-s.failed:
		return err
	case err := <-s.set.Failed():
		return err
	}
}

// phases brings the server up. Each waits for what it needs; the order is that of their needs.
func (s *server) phases(ctx context.Context) error {
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"finding this node's addresses", s.findAddresses},
		{"reading the tokens", s.readTokens},
		{"starting the container runtime", s.startRuntime},
		{"reading the cluster's data", s.readBootstrap},
		{"joining", s.join},
		{"making certificates", s.makeCertificates},
		{"starting the supervisor", s.startSupervisor},
		{"starting kubelet", s.startKubelet},
		{"starting etcd", s.startEtcd},
		{"comparing the cluster's data", s.settleBootstrap},
		{"starting snapshots", s.startSnapshots},
		{"starting the API server", s.startAPIServer},
		{"starting the controllers", s.startControllers},
		{"deploying", s.startDeploying},
		{"starting the agent", s.startAgent},
	} {
		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	s.log.Info("This server is up", "node", s.NodeName)
	return notify.Ready()
}

func (s *server) findAddresses(context.Context) error {
	ips, err := agent.NodeIPs(s.Config)
	s.ips = ips
	return err
}

// hasAPI reports whether this server runs the Kubernetes API.
func (s *server) hasAPI() bool { return !s.DisableAPIServer }

// address is host:port of this server's API for others.
func (s *server) address() string {
	host := s.ips[0]
	if s.AdvertiseAddress != "" {
		host = s.AdvertiseAddress
	}
	return net.JoinHostPort(host, strconv.Itoa(s.AdvertisePort))
}

// localURL is where this node's own components find the Kubernetes API.
func (s *server) localURL() string {
	port := s.HTTPSPort
	if !s.hasAPI() {
		port = s.LBServerPort
	}
	return "https://127.0.0.1:" + strconv.Itoa(port)
}

// adminKubeconfig is the administrator's, in which the certificates are included.
func (s *server) adminKubeconfig() string { return s.data.Cred("admin.kubeconfig") }

func (s *server) writeKubeconfigs() error {
	ca := s.data.TLS("server-ca.crt")
	for name, cert := range map[string]string{
		"admin": "client-admin", "controller": "client-controller", "scheduler": "client-scheduler",
		"supervisor": "client-supervisor",
	} {
		if err := kubeconfig.Write(s.data.Cred(name+".kubeconfig"), s.localURL(), ca, s.data.TLS(cert)); err != nil {
			return err
		}
	}
	mode, err := strconv.ParseUint(s.WriteKubeconfigMode, 8, 32)
	if err != nil {
		return fmt.Errorf("write-kubeconfig-mode: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.WriteKubeconfig), 0o755); err != nil {
		return err
	}
	return kubeconfig.WriteWhole(s.WriteKubeconfig, s.localURL(), ca, s.data.TLS("client-admin"), os.FileMode(mode))
}
