package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/tunnel"
)

// recheckAfter is longer than any handshake takes.
const recheckAfter = 15 * time.Second

// recheck ends the session of a caller who would not be let in any more.
func (s *Server) recheck(c *caller) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var refused *refusal
	switch err := c.valid(ctx); {
	case err == nil:
	case errors.As(err, &refused) && refused.code == http.StatusUnauthorized:
		s.opts.Tunnels.Disconnect(func(a tunnel.Agent) bool {
			return a.Key == c.agent.Key && a.Identity == c.agent.Identity && (a.Stock == nil) == (c.agent.Stock == nil)
		}, refused.message)
	default:
		// What is deleted later ends the session by a watch; this look is for the moment of the handshake only.
		s.log.Info("An agent that has just connected could not be looked at again", "key", c.agent.Key, "reason", err.Error())
	}
}

// watchRevocations ends sessions as soon as what they were let in with is deleted.
func (s *Server) watchRevocations(ctx context.Context, informers cache.Informers) error {
	for _, watched := range []struct {
		object client.Object
		// ended tells which sessions end with a deleted object, and why.
		ended func(ctx context.Context, deleted client.Object) (match func(tunnel.Agent) bool, reason string)
	}{
		{&managementv3.TunnelAgent{}, endAgent},
		{&managementv3.ClusterRegistrationToken{}, endStock},
		{&managementv3.Cluster{}, endCluster},
		{&corev1.ServiceAccount{}, s.endMachine},
	} {
		informer, err := informers.GetInformer(ctx, watched.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", watched.object, err)
		}
		end := func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			object, ok := obj.(client.Object)
			if !ok {
				return
			}
			if match, reason := watched.ended(ctx, object); match != nil {
				s.opts.Tunnels.Disconnect(match, reason)
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			UpdateFunc: func(before, after any) {
				old, isOld := before.(client.Object)
				now, isNow := after.(client.Object)
				if isOld && isNow && (old.GetUID() != now.GetUID() || old.GetDeletionTimestamp().IsZero() && !now.GetDeletionTimestamp().IsZero()) {
					end(before)
				}
			},
			DeleteFunc: end,
		})
		if err != nil {
			return fmt.Errorf("watching %T: %w", watched.object, err)
		}
	}
	return nil
}

func endAgent(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	identity := client.ObjectKeyFromObject(deleted).String()
	return func(a tunnel.Agent) bool { return a.Identity == identity }, "TunnelAgent " + identity + " was deleted"
}

// endStock ends what came with a registration token. Which of the cluster's it was is not known any more; an agent with another one comes back.
func endStock(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	cluster := deleted.GetNamespace()
	return func(a tunnel.Agent) bool {
		return a.Identity == "" && (a.Key == cluster || a.Key == stockAPIPrefix+cluster)
	}, "ClusterRegistrationToken " + client.ObjectKeyFromObject(deleted).String() + " was deleted"
}

func endCluster(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	cluster := deleted.GetName()
	return func(a tunnel.Agent) bool {
		return a.Key == cluster || a.Key == stockAPIPrefix+cluster || strings.HasPrefix(a.Key, cluster+":")
	}, "the management Cluster " + cluster + " was deleted"
}

// endMachine ends the sessions that were opened with a ServiceAccount that is deleted, and has the watches of its plan look again.
func (s *Server) endMachine(_ context.Context, deleted client.Object) (func(tunnel.Agent) bool, string) {
	s.sources.changed.notify(accountSubject(deleted.GetNamespace(), deleted.GetName()))
	identity := accountIdentity(client.ObjectKeyFromObject(deleted))
	return func(a tunnel.Agent) bool { return a.Identity == identity }, "the ServiceAccount of this machine was deleted"
}
