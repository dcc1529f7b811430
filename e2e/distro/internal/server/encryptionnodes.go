package server

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// encryptionHash is the annotation of a Node with the stage and the hash of the keys of its server.
var encryptionHash = flavour.Name("*.io/encryption-config-hash")

// tellEncryption writes a stage and a hash on the Node of this server, if it has one.
func (s *server) tellEncryption(ctx context.Context, state string) error {
	err := s.patchNode(ctx, s.NodeName, types.MergePatchType,
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{encryptionHash: state}}})
	if s.DisableAgent && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// tellSavedEncryption writes on the Node what is on the disk of this server.
func (s *server) tellSavedEncryption(ctx context.Context) error {
	stage, hash, err := s.savedStage()
	if err != nil {
		return err
	}
	return s.tellEncryption(ctx, stage+"-"+hash)
}

// controlPlanes are the Nodes whose servers have keys.
func (s *server) controlPlanes(ctx context.Context) ([]corev1.Node, error) {
	list, err := s.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "node-role.kubernetes.io/control-plane=true"})
	if err != nil {
		return nil, fmt.Errorf("listing control planes: %w", err)
	}
	return list.Items, nil
}

// hashesMatch returns an error if servers have different keys or are at different stages.
func hashesMatch(nodes []corev1.Node) error {
	var first *corev1.Node
	for i, n := range nodes {
		hash, ok := n.Annotations[encryptionHash]
		switch {
		case !ok:
		case first == nil:
			first = &nodes[i]
		case first.Annotations[encryptionHash] != hash:
			return fmt.Errorf("hash does not match between %s and %s", first.Name, n.Name)
		}
	}
	return nil
}

// currentStage is the stage of this server, by its Node or, on a server without one, by its disk.
func (s *server) currentStage(nodes []corev1.Node) (stage, hash string, err error) {
	for _, n := range nodes {
		if n.Name == s.NodeName && n.Annotations[encryptionHash] != "" {
			stage, hash, _ = strings.Cut(n.Annotations[encryptionHash], "-")
			return stage, hash, nil
		}
	}
	return s.savedStage()
}

// checkStage returns an error unless all servers have the same keys, this one has those on its disk, and the stage is one of want.
func (s *server) checkStage(ctx context.Context, want ...string) error {
	nodes, err := s.controlPlanes(ctx)
	if err != nil {
		return err
	}
	if err := hashesMatch(nodes); err != nil {
		return err
	}
	stage, hash, err := s.currentStage(nodes)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(s.encryptionFile())
	if err != nil {
		return err
	}
	if !strings.Contains(strings.Join(want, " "), stage) {
		return fmt.Errorf("incorrect stage: %s found on node %s", stage, s.NodeName)
	}
	if hash != supervisor.Hash(raw) {
		return fmt.Errorf("invalid hash: %s found on node %s", hash, s.NodeName)
	}
	return nil
}

// keyTypes are the names that k3s prints for providers.
var keyTypes = map[string]string{aescbc: "AES-CBC", secretbox: "XSalsa20-POLY1305"}

// encryptionStatus says where the encryption of Secrets stands.
func (s *server) encryptionStatus(ctx context.Context) (supervisor.EncryptionState, error) {
	out := supervisor.EncryptionState{}
	e, err := s.readEncryption()
	if err == errNeverEncrypted {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	enabled := e.enabled && s.SecretsEncryption
	out.Enable = &enabled
	nodes, err := s.controlPlanes(ctx)
	if err != nil {
		return out, err
	}
	out.HashMatch = true
	if err := hashesMatch(nodes); err != nil {
		out.HashMatch, out.HashError = false, err.Error()
	}
	if out.Stage, _, err = s.currentStage(nodes); err != nil {
		return out, err
	}
	for i, k := range e.keys {
		name := keyTypes[k.provider] + " " + k.Name
		if i == 0 && e.enabled {
			out.ActiveKey = name
		} else {
			out.InactiveKeys = append(out.InactiveKeys, name)
		}
	}
	return out, nil
}
