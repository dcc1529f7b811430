package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// quiet is the logger of etcd's client, which says little of use.
var quiet = zap.NewNop()

// etcdPlan is how this server's member starts.
type etcdPlan struct {
	name, initialCluster, state string
	force                       bool
}

// planEtcd decides whether this server's member goes on, founds a cluster or joins one.
func (s *server) planEtcd(ctx context.Context) (etcdPlan, error) {
	name, err := s.etcdName()
	if err != nil {
		return etcdPlan{}, err
	}
	alone := etcdPlan{name: name, initialCluster: name + "=" + s.peerURL(), state: "new"}
	if _, err := os.Stat(s.data.Etcd("member")); err == nil {
		return alone, nil // etcd knows its cluster from its data
	}
	if s.Server == "" {
		return alone, nil
	}
	return s.joinEtcd(ctx, name)
}

// etcdName is the name of this server's member, made on its first start.
func (s *server) etcdName() (string, error) {
	raw, err := os.ReadFile(s.data.Etcd("name"))
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	name := s.newEtcdName()
	return name, pki.WriteFile(s.data.Etcd("name"), []byte(name), 0o600)
}

func (s *server) newEtcdName() string {
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // never fails
	return s.NodeName + "-" + hex.EncodeToString(suffix)
}

// joinEtcd adds this server's member to the cluster as one that may not vote until it has caught up.
func (s *server) joinEtcd(ctx context.Context, name string) (etcdPlan, error) {
	for {
		members, err := s.addMember(ctx)
		if err == nil {
			var initial []string
			for _, m := range members {
				for _, u := range m.PeerURLs {
					who := m.Name
					if slices.Contains(m.PeerURLs, s.peerURL()) {
						who = name
					}
					initial = append(initial, who+"="+u)
				}
			}
			return etcdPlan{name: name, initialCluster: strings.Join(initial, ","), state: "existing"}, nil
		}
		s.log.Info("Waiting to be taken in by the etcd cluster", "error", err)
		if err := sleep(ctx, 2*time.Second); err != nil {
			return etcdPlan{}, err
		}
	}
}

func (s *server) addMember(ctx context.Context) ([]*etcdserverpb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	info, err := s.upstreamEtcd(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.etcdClient(endpoints(info)...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	list, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the members of etcd: %w", err)
	}
	for _, m := range list.Members {
		if !slices.Contains(m.PeerURLs, s.peerURL()) {
			continue
		}
		if m.Name == "" {
			return list.Members, nil // an earlier try got this far
		}
		s.log.Info("Removing the member that this node was before", "member", m.Name)
		if _, err := c.MemberRemove(ctx, m.ID); err != nil {
			return nil, fmt.Errorf("removing the etcd member %s: %w", m.Name, err)
		}
	}
	added, err := c.MemberAddAsLearner(ctx, []string{s.peerURL()})
	if err != nil {
		return nil, fmt.Errorf("adding a member to etcd: %w", err)
	}
	return added.Members, nil
}

// promote lets this server's member vote, if it may not yet and has caught up.
func (s *server) promote(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	info, err := s.upstreamEtcd(ctx)
	if err != nil {
		return
	}
	c, err := s.etcdClient(endpoints(info)...)
	if err != nil {
		return
	}
	defer c.Close()
	for _, m := range info.Members {
		if !m.IsLearner || !slices.Contains(m.PeerURLs, s.peerURL()) {
			continue
		}
		if _, err := c.MemberPromote(ctx, m.ID); err != nil {
			s.log.Info("Waiting until this etcd member has caught up", "error", err)
		}
	}
}

// etcdInfo asks etcd for its members.
func (s *server) etcdInfo(ctx context.Context) (supervisor.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := s.localEtcd()
	if err != nil {
		return supervisor.Info{}, err
	}
	list, err := c.MemberList(ctx)
	if err != nil {
		return supervisor.Info{}, fmt.Errorf("listing the members of etcd: %w", err)
	}
	var out supervisor.Info
	for _, m := range list.Members {
		out.Members = append(out.Members,
			supervisor.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, IsLearner: m.IsLearner})
	}
	return out, nil
}

// upstreamEtcd asks the server this one joined at for the members of etcd; if that is gone, it goes by what it knew last.
func (s *server) upstreamEtcd(ctx context.Context) (supervisor.Info, error) {
	var info supervisor.Info
	if s.upstream != nil {
		return s.upstream.Etcd(ctx)
	}
	raw, err := os.ReadFile(s.data.Server("db", "members.json"))
	if err != nil {
		return info, errors.New("the server to join at did not answer, and no members of etcd are known from before")
	}
	return info, json.Unmarshal(raw, &info)
}

func (s *server) rememberEtcd(info supervisor.Info) error {
	raw, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return pki.WriteFile(s.data.Server("db", "members.json"), raw, 0o600)
}

// endpoints are the client URLs of the members that answer clients.
func endpoints(info supervisor.Info) []string {
	var out []string
	for _, m := range info.Members {
		if !m.IsLearner {
			out = append(out, m.ClientURLs...)
		}
	}
	return out
}

func hosts(info supervisor.Info) []string {
	var out []string
	for _, u := range endpoints(info) {
		out = append(out, hostOf(u))
	}
	return out
}
