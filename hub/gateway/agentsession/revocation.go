package agentsession

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/util/response"
)

// recheckTimeout bounds how long the API may take to authenticate an agent again.
const recheckTimeout = time.Minute

// recheck ends the session of an agent whose credential is no longer valid.
func (a *Agents) recheck(c *Caller) {
	ctx, cancel := context.WithTimeout(context.Background(), recheckTimeout)
	defer cancel()
	switch err := c.valid(ctx); {
	case err == nil:
	case response.IsCode(err, http.StatusUnauthorized):
		a.Tunnels.Disconnect(func(a tunnel.Agent) bool {
			return a.Key == c.agent.Key && a.Identity == c.agent.Identity && (a.Legacy == nil) == (c.agent.Legacy == nil)
		}, err.Error())
	default:
		// Later deletions end the session by a watch; this check covers the time of the handshake only.
		a.Logger.Info("Authenticating a new session of an agent again failed", "key", c.agent.Key, "reason", err.Error())
	}
}

// WatchRevocations ends sessions as soon as the object behind their credential is deleted: the TunnelAgent, the ServiceAccount of a
// machine, the management Cluster, or a ClusterRegistrationToken of a legacy agent's cluster, or its Secret. It returns at once; informers
// call it until ctx ends.
func (a *Agents) WatchRevocations(ctx context.Context, informers cache.Informers) error {
	for _, watched := range []struct {
		object client.Object
		// ended returns which sessions end with a deleted object, and why.
		ended func(ctx context.Context, deleted client.Object) (match func(tunnel.Agent) bool, reason string)
	}{
		{&managementv3.TunnelAgent{}, endAgent},
		{&managementv3.ClusterRegistrationToken{}, endLegacy},
		{&managementv3.Cluster{}, endCluster},
		{plandelivery.NewAccount(), a.endMachine},
	} {
		informer, err := informers.GetInformer(ctx, watched.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", watched.object, err)
		}
		end := func(obj any) {
			if final, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = final.Obj
			}
			object, ok := obj.(client.Object)
			if !ok {
				return
			}
			if match, reason := watched.ended(ctx, object); match != nil {
				a.Tunnels.Disconnect(match, reason)
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			UpdateFunc: func(before, after any) {
				old, isOld := before.(client.Object)
				now, isNow := after.(client.Object)
				if isOld && isNow && revoked(old, now) {
					end(before)
				}
			},
			DeleteFunc: end,
		})
		if err != nil {
			return fmt.Errorf("watching %T: %w", watched.object, err)
		}
	}
	return a.Secrets.OnRegistrationDeleted(func(secret *corev1.Secret) { a.endRevoked(ctx, secret) })
}

// revoked reports whether a change of an object takes back what it has authorized: another object has its name, it is being deleted, or it
// is a token that legacy agents may no longer show.
func revoked(before, after client.Object) bool {
	if before.GetUID() != after.GetUID() || before.GetDeletionTimestamp().IsZero() && !after.GetDeletionTimestamp().IsZero() {
		return true
	}
	old, isOld := before.(*managementv3.ClusterRegistrationToken)
	now, isNow := after.(*managementv3.ClusterRegistrationToken)
	return isOld && isNow && servesLegacy(old) && !servesLegacy(now)
}

func endAgent(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	identity := client.ObjectKeyFromObject(deleted).String()
	return func(a tunnel.Agent) bool { return a.Identity == identity }, "TunnelAgent " + identity + " was deleted"
}

// endLegacy ends the sessions of all legacy agents of a cluster, if a token is deleted that agents could show. Which token each has shown
// is not kept; those with another one reconnect.
func endLegacy(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	if token, ok := deleted.(*managementv3.ClusterRegistrationToken); ok && !servesLegacy(token) {
		return nil, ""
	}
	cluster := deleted.GetNamespace()
	return func(a tunnel.Agent) bool {
		return a.Identity == "" && (a.Key == cluster || a.Key == legacyAPIPrefix+cluster)
	}, "ClusterRegistrationToken " + client.ObjectKeyFromObject(deleted).String() + " was deleted, restricted or replaced"
}

// endRevoked ends the sessions of legacy agents whose token was revoked by the deletion of its Secret. Where the ClusterRegistrationToken
// is gone as well, its own deletion ends them.
func (a *Agents) endRevoked(ctx context.Context, secret *corev1.Secret) {
	name, isToken := strings.CutPrefix(secret.Name, managementv3.TokenSecretPrefix)
	token := &managementv3.ClusterRegistrationToken{}
	if !isToken || a.Client.Get(ctx, client.ObjectKey{Namespace: secret.Namespace, Name: name}, token) != nil {
		return
	}
	if match, reason := endLegacy(ctx, token); match != nil {
		a.Tunnels.Disconnect(match, reason)
	}
}

func endCluster(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	cluster := deleted.GetName()
	return func(a tunnel.Agent) bool {
		return a.Key == cluster || a.Key == legacyAPIPrefix+cluster || strings.HasPrefix(a.Key, cluster+":")
	}, "the management Cluster " + cluster + " was deleted"
}

// endMachine ends the sessions that were opened with a deleted ServiceAccount, and has the watches of its plan authenticate again.
func (a *Agents) endMachine(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	account := client.ObjectKeyFromObject(deleted)
	a.Secrets.AccountChanged(account)
	identity := accountIdentity(account)
	return func(a tunnel.Agent) bool { return a.Identity == identity }, "the ServiceAccount of this machine was deleted"
}
