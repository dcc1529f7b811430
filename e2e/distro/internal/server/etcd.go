package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/balance"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// localEtcdAddress is where a server finds etcd.
const localEtcdAddress = "127.0.0.1:2379"

// startEtcd starts this server's member of etcd, or, on a server without one, a balancer over the others' members, and
// waits until etcd answers.
func (s *server) startEtcd(ctx context.Context) error {
	if s.DisableEtcd {
		return s.balanceEtcd(ctx)
	}
	if !flavour.Current.StaticPods { // it has been started with kubelet otherwise
		if err := s.honourTombstone(); err != nil {
			return err
		}
		plan, err := s.planEtcd(ctx)
		if err != nil {
			return err
		}
		if err := s.runEtcd(plan); err != nil {
			return err
		}
	}
	if err := s.waitEtcd(ctx); err != nil {
		return err
	}
	return s.clearResetFlag()
}

// writeEtcdConfig writes etcd's configuration and returns the file.
func (s *server) writeEtcdConfig(plan etcdPlan) (string, error) {
	file := s.data.Etcd("config")
	raw, err := yaml.Marshal(s.etcdConfig(plan))
	if err != nil {
		return "", err
	}
	return file, pki.WriteFile(file, raw, 0o600)
}

func (s *server) runEtcd(plan etcdPlan) error {
	file, err := s.writeEtcdConfig(plan)
	if err != nil {
		return err
	}
	return s.set.Start(child.Child{Name: etcdMember, Args: []string{"internal", "etcd", "--config-file=" + file}, Patience: time.Second,
		Farewell: s.handOver, Spared: s.wasRemoved})
}

// honourTombstone moves the data of etcd away if somebody has said that this member is dead, so that it joins again.
func (s *server) honourTombstone() error {
	if _, err := os.Stat(s.data.Etcd("tombstone")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, err := s.moveEtcdAway()
	return err
}

// keptBackups is how many former data folders of etcd stay.
const keptBackups = 5

// moveEtcdAway keeps the data of etcd beside where it was, and returns where; it deletes older ones that are too many.
func (s *server) moveEtcdAway() (string, error) {
	to := fmt.Sprintf("%s-old-%d", s.data.Etcd(), time.Now().Unix())
	s.log.Info("Moving the data of etcd away", "to", to)
	if err := os.Rename(s.data.Etcd(), to); err != nil {
		return "", err
	}
	old, _ := filepath.Glob(s.data.Etcd() + "-old-*")
	slices.Sort(old) // the times have as many digits for the next 250 years
	for len(old) > keptBackups {
		if err := os.RemoveAll(old[0]); err != nil {
			return to, err
		}
		old = old[1:]
	}
	return to, nil
}

// etcdConfig is etcd's configuration file.
func (s *server) etcdConfig(plan etcdPlan) map[string]any {
	metrics := "http://127.0.0.1:2381"
	if s.EtcdExposeStats {
		metrics += ",http://" + net.JoinHostPort(s.ips[0], "2381")
	}
	c := map[string]any{
		"name": plan.name, "data-dir": s.data.Etcd(), "logger": "zap", "log-level": "warn", "log-outputs": []string{"stderr"},
		"listen-client-urls":    "https://127.0.0.1:2379,https://" + net.JoinHostPort(s.ips[0], "2379"),
		"advertise-client-urls": "https://" + net.JoinHostPort(s.ips[0], "2379"),
		"listen-peer-urls":      "https://127.0.0.1:2380,https://" + net.JoinHostPort(s.ips[0], "2380"),
		"listen-metrics-urls":   metrics,
		"initial-cluster":       plan.initialCluster, "initial-cluster-state": plan.state,
		"initial-advertise-peer-urls": s.peerURL(), "initial-cluster-token": "etcd-cluster",
		"heartbeat-interval": 300, "election-timeout": 3000, "snapshot-count": 10000, "force-new-cluster": plan.force,
		"client-transport-security": map[string]any{"client-cert-auth": true, "trusted-ca-file": s.data.TLS("etcd/server-ca.crt"),
			"cert-file": s.data.TLS("etcd/server-client.crt"), "key-file": s.data.TLS("etcd/server-client.key")},
		"peer-transport-security": map[string]any{"client-cert-auth": true, "trusted-ca-file": s.data.TLS("etcd/peer-ca.crt"),
			"cert-file": s.data.TLS("etcd/peer-server-client.crt"), "key-file": s.data.TLS("etcd/peer-server-client.key")},
	}
	for _, text := range s.EtcdArg {
		if k, v, found := strings.Cut(text, "="); found {
			var value any
			if yaml.Unmarshal([]byte(v), &value) == nil {
				c[k] = value
			}
		}
	}
	return c
}

func (s *server) peerURL() string { return peerURL(s.ips[0]) }

func peerURL(address string) string { return "https://" + net.JoinHostPort(address, "2380") }

// handOver makes another member the leader, if this server's is, before etcd is told to end. Etcd does so itself only once its
// last client has hung up, and clients on other servers do not; without a leader the whole cluster waits for some seconds.
func (s *server) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	c, err := s.localEtcd()
	if err != nil {
		return
	}
	defer c.Close()
	status, err := c.Status(ctx, "https://"+localEtcdAddress)
	if err != nil || status.Leader != status.Header.MemberId {
		return
	}
	list, err := c.MemberList(ctx)
	if err != nil {
		return
	}
	for _, m := range list.Members {
		if m.ID == status.Leader || m.IsLearner || m.Name == "" {
			continue
		}
		if _, err := c.MoveLeader(ctx, m.ID); err == nil {
			s.log.Info("Another etcd member leads now", "member", m.Name)
			return
		}
	}
}

// etcdClient connects to the members at the given addresses.
func (s *server) etcdClient(endpoints ...string) (*clientv3.Client, error) {
	conf, err := pki.ClientTLS(s.data.TLS("etcd/client"), s.data.TLS("etcd/server-ca.crt"))
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: conf, DialTimeout: 5 * time.Second, Logger: quiet})
}

// localEtcd is the one client of the etcd that this server uses: its own member, or the balancer in its place.
func (s *server) localEtcd() (*clientv3.Client, error) {
	s.etcdMu.Lock()
	defer s.etcdMu.Unlock()
	if s.etcd != nil {
		return s.etcd, nil
	}
	var err error
	s.etcd, err = s.etcdClient("https://" + localEtcdAddress)
	return s.etcd, err
}

// waitEtcd waits until etcd has a leader and this server's member has caught up with it.
func (s *server) waitEtcd(ctx context.Context) error {
	// A client that finds nobody there pauses for longer each time.
	for !listens(localEtcdAddress) {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	c, err := s.localEtcd()
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := c.Get(try, "health")
		cancel()
		if err == nil {
			s.etcdAnswered.Store(true)
			return nil
		}
		if n%4 == 2 {
			s.promote(ctx)
		}
		if n%20 == 10 {
			s.log.Info("Waiting for etcd to answer", "error", err)
		}
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// balanceEtcd makes the members of other servers answer at the address where a member of this one would.
func (s *server) balanceEtcd(ctx context.Context) error {
	var first []string
	for first == nil {
		info, err := s.upstreamEtcd(ctx)
		if err == nil {
			first = hosts(info)
			break
		}
		s.log.Info("Waiting for a server that runs etcd", "error", err)
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	b, err := balance.Listen(ctx, s.log, localEtcdAddress, first)
	if err != nil {
		return err
	}
	if err := s.waitEtcd(ctx); err != nil {
		return err
	}
	go b.Follow(ctx, 10*time.Second, func(ctx context.Context) ([]string, error) {
		info, err := s.etcdInfo(ctx)
		if err == nil {
			err = s.rememberEtcd(info)
		}
		return hosts(info), err
	})
	return nil
}

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}
