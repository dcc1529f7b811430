package etcdremoval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/release"
	"github.com/drover-dev/drover/hub/rollout"
)

// scope is what one pass has read and found.
type scope struct {
	key client.ObjectKey
	// cluster is nil if it is gone. controlPlane is nil if the cluster has none, or one of another kind.
	cluster      *clusterv1.Cluster
	controlPlane *rkev1.RKEControlPlane
	// machines are those of the cluster that have an RKEBootstrap.
	machines []*member
	// situation is set by readSituation.
	situation situation

	requeueAfter time.Duration
}

// member is a Machine, with or without etcd.
type member struct {
	machine *clusterv1.Machine
	// bootstrap is never nil, and empty if it is gone.
	bootstrap *rkev1.RKEBootstrap
	etcd      bool
	// state and node are set by readSituation; node is nil where there is none.
	state rollout.Machine
	node  *corev1.Node
}

func (m *member) candidate() candidate {
	return candidate{machine: m.machine, state: m.state, forced: isForcedBy(m.machine) || isForcedBy(m.bootstrap)}
}

func isForcedBy(o client.Object) bool {
	return o.GetAnnotations()[rkev1.EtcdForceRemoveAnnotation] == "true"
}

func (s *scope) paused() bool {
	return s.cluster != nil && (annotations.IsPaused(s.cluster, s.cluster) || s.controlPlane != nil && annotations.HasPaused(s.controlPlane))
}

// going says why nothing of the cluster is to be kept; empty if something is.
func (s *scope) going() string {
	switch {
	case s.cluster == nil:
		return "The Cluster is gone"
	case !s.cluster.DeletionTimestamp.IsZero():
		return "The Cluster is being deleted"
	case s.controlPlane == nil:
		return "The Cluster has no RKEControlPlane"
	case !s.controlPlane.DeletionTimestamp.IsZero():
		return "The RKEControlPlane is being deleted"
	}
	return ""
}

// runtime is the distribution, which the names of annotations depend on.
func (s *scope) runtime() string { return release.Runtime(s.controlPlane.Spec.DesiredVersion()) }

// held are the Machines that are being deleted and wait for their hook to be taken away.
func (s *scope) held() []*member {
	var held []*member
	for _, m := range s.machines {
		if !m.machine.DeletionTimestamp.IsZero() && hasHook(m.machine) && !annotations.HasPaused(m.machine) {
			held = append(held, m)
		}
	}
	slices.SortFunc(held, byDeletion)
	return held
}

func readCluster(ctx context.Context, s *scope, from client.Reader) error {
	cluster := &clusterv1.Cluster{}
	if err := from.Get(ctx, s.key, cluster); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the Cluster: %w", err)
		}
		return nil
	}
	s.cluster = cluster
	var err error
	s.controlPlane, _, err = ownership.ControlPlane(ctx, from, cluster)
	return err
}

// readMachines reads the cluster's Machines and their RKEBootstraps. Either may say that there is etcd.
func readMachines(ctx context.Context, s *scope, from client.Reader) error {
	in, of := client.InNamespace(s.key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.key.Name}
	var machines clusterv1.MachineList
	if err := from.List(ctx, &machines, in, of); err != nil {
		return fmt.Errorf("listing the cluster's Machines: %w", err)
	}
	var bootstraps rkev1.RKEBootstrapList
	if err := from.List(ctx, &bootstraps, in, of, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the cluster's RKEBootstraps: %w", err)
	}
	byName := make(map[string]*rkev1.RKEBootstrap, len(bootstraps.Items))
	for i := range bootstraps.Items {
		byName[bootstraps.Items[i].Name] = &bootstraps.Items[i]
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		ref := machine.Spec.Bootstrap.ConfigRef
		if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKEBootstrap" {
			continue
		}
		m := &member{machine: machine, bootstrap: byName[ref.Name]}
		if m.bootstrap == nil || ownership.OfMachine(m.bootstrap, machine) != nil {
			m.bootstrap = &rkev1.RKEBootstrap{}
		}
		m.etcd = machine.Labels[rkev1.EtcdRoleLabel] == "true" || m.bootstrap.Labels[rkev1.EtcdRoleLabel] == "true"
		s.machines = append(s.machines, m)
	}
	return nil
}

// readSituation reads what rules want to know: the plan Secrets from the one, the Nodes from the other.
func (r *Reconciler) readSituation(ctx context.Context, s *scope, from client.Reader, read func(context.Context, client.ObjectKey) ([]corev1.Node, error)) error {
	s.situation = situation{going: s.going(), started: s.cluster != nil && initialized(s.cluster), now: r.Now()}
	s.situation.inputs.Now = s.situation.now
	var secrets corev1.SecretList
	if err := from.List(ctx, &secrets, client.InNamespace(s.key.Namespace), client.MatchingLabels{rkev1.ClusterNameLabel: s.key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the cluster's plan Secrets: %w", err)
	}
	plans := map[string]*corev1.Secret{}
	for i := range secrets.Items {
		if secrets.Items[i].Type == rkev1.MachinePlanSecretType {
			plans[secrets.Items[i].Name] = &secrets.Items[i]
		}
	}
	nodes, err := read(ctx, s.key)
	if err != nil && !errors.Is(err, clustercache.ErrClusterNotConnected) {
		return fmt.Errorf("reading the Nodes of the cluster: %w", err)
	}
	s.situation.connected = err == nil
	matched := machinestate.NewNodes(nodes)
	for _, m := range s.machines {
		// A report that cannot be read tells nothing, and etcd may be as it is.
		m.state, _, _ = machinestate.Of(m.machine, m.bootstrap, plans[rkev1.PlanSecretName(m.machine.Spec.Bootstrap.ConfigRef.Name)])
		m.node = matched.Of(m.machine)
		if s.situation.connected {
			m.state.ReadNode(m.node)
		}
		// A status gets lost when a cluster is moved. A control plane machine that others could join has had an API.
		s.situation.started = s.situation.started || m.state.ControlPlane && m.state.JoinURL != ""
		s.situation.inputs.Machines = append(s.situation.inputs.Machines, m.state)
	}
	s.situation.inputs.Strangers = matched.Strangers()
	s.situation.deletedAt = deletedAt(s.machines)
	return nil
}

// deletedAt is when the last etcd or control plane machine was deleted; zero while one stays.
func deletedAt(members []*member) (last time.Time) {
	for _, m := range members {
		if !m.state.Etcd && !m.state.ControlPlane {
			continue
		}
		at := m.machine.DeletionTimestamp
		if at.IsZero() {
			return time.Time{}
		}
		if at.After(last) {
			last = at.Time
		}
	}
	return last
}

// nodes reads from the cache that Cluster API keeps of a cluster's Nodes, and has changes of them reported.
func (r *Reconciler) nodes(ctx context.Context, key client.ObjectKey) ([]corev1.Node, error) {
	err := r.ClusterCache.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         controllerName + "-nodes",
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request { return request(key.Namespace, key.Name) }),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeChanged},
	}))
	if err != nil {
		return nil, err
	}
	reader, err := r.ClusterCache.GetReader(ctx, key)
	if err != nil {
		return nil, err
	}
	return list(ctx, reader)
}

// liveNodes reads past the cache.
func (r *Reconciler) liveNodes(ctx context.Context, key client.ObjectKey) ([]corev1.Node, error) {
	reader, err := r.ClusterCache.GetUncachedClient(ctx, key)
	if err != nil {
		return nil, err
	}
	return list(ctx, reader)
}

func list(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
	return nodes.Items, err
}
