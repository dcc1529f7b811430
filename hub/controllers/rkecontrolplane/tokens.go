package rkecontrolplane

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
)

// The keys of the Secret with a cluster's tokens, beyond serverTokenKey and agentTokenKey. Replaced tokens have the same keys with
// a dash and the time of that (replacedFormat).
const (
	newServerTokenKey = tokens.NewServerKey
	newAgentTokenKey  = "newAgentToken"
	// rotatedByKey is the UID of the last TokenRotation whose tokens became the cluster's.
	rotatedByKey   = "rotatedBy"
	replacedFormat = "20060102T150405Z"
)

func (s *scope) setTokens(secret *corev1.Secret) {
	s.tokenSecret = secret
	s.tokens = render.Tokens{Server: string(secret.Data[serverTokenKey]), Agent: string(secret.Data[agentTokenKey]),
		NewServer: string(secret.Data[newServerTokenKey]), NewAgent: string(secret.Data[newAgentTokenKey])}
}

// rotateTokens makes the tokens of a TokenRotation that has begun, and makes them the cluster's once the leader has its step behind it,
// which the operation's status says. New tokens outlive an operation that has failed: a server may have taken them, and restarts wait for
// another TokenRotation. Without a server that was given them, whoever deletes both keys gives up the rotation.
func (r *Reconciler) rotateTokens(ctx context.Context, s *scope) error {
	op, is := s.operation.(*operationv1.TokenRotation)
	if !is || s.tokenSecret == nil {
		return nil
	}
	wanted := s.tokenSecret.DeepCopy()
	data := wanted.Data
	switch rotated := string(data[rotatedByKey]) == string(op.UID); {
	case rotated || op.Status.Phase != operationv1.PhaseInProgress:
		return nil
	case !operation.TokenRotated(op):
		if len(data[newServerTokenKey]) > 0 && len(data[newAgentTokenKey]) > 0 {
			return nil
		}
		data[newServerTokenKey], data[newAgentTokenKey] = newToken(), newToken()
	default:
		if len(data[newServerTokenKey]) == 0 || len(data[newAgentTokenKey]) == 0 {
			return fmt.Errorf("the Secret %s lacks %s or %s, which a server has been given", wanted.Name, newServerTokenKey,
				newAgentTokenKey)
		}
		r.replaceTokens(data, data[newServerTokenKey], data[newAgentTokenKey])
		data[rotatedByKey] = []byte(op.UID)
		ctrl.LoggerFrom(ctx).Info("The cluster has new tokens", "TokenRotation", op.Namespace+"/"+op.Name)
	}
	return r.writeTokens(ctx, s, wanted)
}

// replaceTokens makes these the tokens of the cluster. Those of now are kept, and those that were to be next are not.
func (r *Reconciler) replaceTokens(data map[string][]byte, server, agent []byte) {
	replaced := "-" + r.Now().UTC().Format(replacedFormat)
	data[serverTokenKey+replaced], data[agentTokenKey+replaced] = data[serverTokenKey], data[agentTokenKey]
	data[serverTokenKey], data[agentTokenKey] = server, agent
	delete(data, newServerTokenKey)
	delete(data, newAgentTokenKey)
}

// writeTokens fails where the Secret was read from a cache that has not seen the last write.
func (r *Reconciler) writeTokens(ctx context.Context, s *scope, wanted *corev1.Secret) error {
	if err := r.Client.Update(ctx, wanted, fieldOwner); err != nil {
		return fmt.Errorf("writing the Secret with the cluster's tokens: %w", err)
	}
	s.setTokens(wanted)
	return nil
}

// restoreTokens makes the tokens of a snapshot's time those of the cluster again, once all machines are stopped for its restore: its data
// is encrypted with the server token. Those of now are kept as by a rotation, for snapshots that were saved since.
func (r *Reconciler) restoreTokens(ctx context.Context, s *scope) error {
	server, agent := s.restoredTokens()
	if server == nil {
		return nil
	}
	op, wanted := s.operation, s.tokenSecret.DeepCopy()
	data := wanted.Data
	if s.tokenPending() {
		// No server of the restored cluster has what a TokenRotation that failed has left. A snapshot that was saved since may need it.
		failed := "-" + r.Now().UTC().Format(replacedFormat)
		data[newServerTokenKey+failed], data[newAgentTokenKey+failed] = data[newServerTokenKey], data[newAgentTokenKey]
		delete(data, newServerTokenKey)
		delete(data, newAgentTokenKey)
	}
	if !bytes.Equal(server, data[serverTokenKey]) || !bytes.Equal(agent, data[agentTokenKey]) {
		r.replaceTokens(data, server, agent)
	}
	if err := r.writeTokens(ctx, s, wanted); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("The cluster has the tokens of the snapshot", "ETCDSnapshotRestore", op.GetNamespace()+"/"+op.GetName())
	return nil
}

// restoredTokens are the tokens that a restore needs; nil where the cluster has them and no others are pending, or before all machines are
// stopped for it.
func (s *scope) restoredTokens() (server, agent []byte) {
	op, is := s.operation.(*operationv1.ETCDSnapshotRestore)
	if !is || s.tokenSecret == nil || !operation.RestoresData(op) || op.Status.Snapshot == nil {
		return nil, nil
	}
	data := s.tokenSecret.Data
	if at := op.Status.Snapshot.CreatedAt; at != nil {
		server, agent = tokensAt(data, at.Time)
	}
	if len(server) == 0 || len(agent) == 0 {
		server, agent = data[serverTokenKey], data[agentTokenKey]
	}
	if bytes.Equal(server, data[serverTokenKey]) && bytes.Equal(agent, data[agentTokenKey]) && !s.tokenPending() {
		return nil, nil
	}
	return server, agent
}

// tokensAt are the tokens that the cluster had at a time, where they were replaced later; nil for those that it has.
func tokensAt(data map[string][]byte, at time.Time) (server, agent []byte) {
	first := time.Time{}
	for key := range data {
		text, is := strings.CutPrefix(key, serverTokenKey+"-")
		replaced, err := time.Parse(replacedFormat, text)
		if is && err == nil && replaced.After(at) && (first.IsZero() || replaced.Before(first)) {
			first = replaced
		}
	}
	if first.IsZero() {
		return nil, nil
	}
	suffix := "-" + first.Format(replacedFormat)
	return data[serverTokenKey+suffix], data[agentTokenKey+suffix]
}

// unknownToken reports whether a snapshot was saved with a server token that the hub does not have. Which of those that it has the snapshot
// needs is another question: until they restart, the servers of a TokenRotation save data that is encrypted with the new token, and the
// hash of the old one.
func (s *scope) unknownToken(snapshot *rkev1.ETCDSnapshot) bool {
	hash := snapshot.Annotations[rkev1.SnapshotTokenHashAnnotation]
	if hash == "" || s.tokenSecret == nil || s.controlPlane.Spec.UnmanagedConfig {
		return false
	}
	return !tokens.HasServerToken(s.tokenSecret.Data, hash)
}

// tokenPending reports whether a server may have been given a token that is not the cluster's yet.
func (s *scope) tokenPending() bool { return s.tokens.NewServer != "" }

// tokensReady reports whether tasks of the operation can be rendered: those of a TokenRotation after its first step need the new tokens,
// and those of a restore the tokens of the time of the snapshot, also where there is nothing to stop before it.
func (s *scope) tokensReady() bool {
	if server, _ := s.restoredTokens(); server != nil {
		return false
	}
	op, is := s.operation.(*operationv1.TokenRotation)
	if is && !operation.TokenRotated(op) {
		return s.tokenPending()
	}
	return !is || s.tokenSecret != nil && string(s.tokenSecret.Data[rotatedByKey]) == string(op.UID)
}

// keepPlan keeps the delivered plan of a machine where its task cannot be rendered yet.
func (r *Reconciler) keepPlan(_ *scope, m *machine, _ operation.Task) error {
	if m.report.Checksum == "" || !r.Signer.Signed(m.secret.Data, m.secret.Namespace+"/"+m.secret.Name) {
		return nil
	}
	m.plan = m.report.Delivered
	return m.encodePlan()
}

// tokensPoll is when tasks are rendered that wait for tokens.
const tokensPoll = time.Second
