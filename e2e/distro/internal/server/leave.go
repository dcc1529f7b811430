package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaveEtcd removes the member of a node that was told to leave, and says so on the Node.
func (s *server) leaveEtcd(ctx context.Context, node *corev1.Node) error {
	name := node.Annotations[etcdNodeName]
	if name == "" {
		return nil
	}
	if err := s.removeMember(ctx, name); err != nil {
		return err
	}
	return s.patchNode(ctx, node.Name, types.MergePatchType,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{etcdRemoved: name}}})
}

// errLastMember is why a member stays: with it etcd would lose its data.
var errLastMember = errors.New("the last member of etcd cannot leave")

// removeMember removes a member, if it is there. Etcd itself refuses what would cost it its quorum.
func (s *server) removeMember(ctx context.Context, name string) error {
	info, err := s.etcdInfo(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := s.localEtcd()
	if err != nil {
		return err
	}
	for _, m := range info.Members {
		if m.Name != name {
			continue
		}
		if len(info.Members) == 1 {
			return errLastMember
		}
		if _, err := c.MemberRemove(ctx, m.ID); err != nil {
			return fmt.Errorf("removing the etcd member %s: %w", name, err)
		}
		s.log.Info("Removed a member of etcd", "member", name)
	}
	return nil
}
