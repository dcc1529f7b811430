package preterminatehook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/clustermachines"
	"github.com/drover-dev/drover/hub/util/limitedjson"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/hub/util/redirect"
)

// scope is what one reconcile has read.
type scope struct {
	key client.ObjectKey
	// cluster is nil if it is gone. controlPlane is nil if the cluster has none, or one of another kind, or one that is refused.
	cluster      *clusterv1.Cluster
	controlPlane *rkev1.RKEControlPlane
	refused      *cause.Cause
	// machines are those of the cluster that have an RKEBootstrap.
	machines []*member
	// state is set by readState, and nodesErr where there is a connection by which the Nodes could not be listed: they count as not listed.
	state    clusterState
	nodesErr error

	requeueAfter time.Duration
}

// member is a Machine, with or without etcd.
type member struct {
	machine *clusterv1.Machine
	// bootstrap is never nil, and empty if it is gone.
	bootstrap *rkev1.RKEBootstrap
	etcd      bool
	// state and node are set by readState; node is nil where there is none. taken is the name of the Node that the Machine names, and that
	// is another Machine's by now.
	state rollout.Machine
	node  *corev1.Node
	taken string
}

func (m *member) candidate() candidate {
	forced := func(o client.Object) bool { return o.GetAnnotations()[rkev1.EtcdForceRemoveAnnotation] == "true" }
	return candidate{machine: m.machine, state: m.state, taken: m.taken, forced: forced(m.machine) || forced(m.bootstrap)}
}

func (s *scope) paused() bool {
	return s.cluster != nil && (annotations.IsPaused(s.cluster, s.cluster) || s.controlPlane != nil && annotations.HasPaused(s.controlPlane))
}

// deletion says why no data of the cluster is to be kept; empty if it is.
func (s *scope) deletion() string {
	switch {
	case s.cluster == nil:
		return "Cluster is gone"
	case !s.cluster.DeletionTimestamp.IsZero():
		return "Cluster is being deleted"
	case s.refused != nil:
		return ""
	case s.controlPlane == nil:
		return "Cluster has no RKEControlPlane"
	case !s.controlPlane.DeletionTimestamp.IsZero():
		return "RKEControlPlane is being deleted"
	}
	return ""
}

// waiting are the Machines that are being deleted and have the hook, in the order of their deletion.
func (s *scope) waiting() []*member {
	var waiting []*member
	for _, m := range s.machines {
		if !m.machine.DeletionTimestamp.IsZero() && hasHook(m.machine) && !annotations.HasPaused(m.machine) {
			waiting = append(waiting, m)
		}
	}
	slices.SortFunc(waiting, byDeletion)
	return waiting
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
	s.controlPlane, s.refused, err = ownership.ControlPlane(ctx, from, cluster)
	return err
}

// readMachines reads the cluster's Machines and their RKEBootstraps. Either may have the label of the etcd role.
func readMachines(ctx context.Context, s *scope, from client.Reader) error {
	machines, err := clustermachines.List(ctx, from, s.key)
	if err != nil {
		return err
	}
	s.machines = nil
	for _, found := range machines {
		m := &member{machine: found.Machine, bootstrap: cmp.Or(found.Bootstrap, &rkev1.RKEBootstrap{})}
		m.etcd = m.machine.Labels[rkev1.EtcdRoleLabel] == "true" || m.bootstrap.Labels[rkev1.EtcdRoleLabel] == "true"
		s.machines = append(s.machines, m)
	}
	return nil
}

// nodeLister lists the Nodes of a cluster. It returns clustercache.ErrClusterNotConnected while there is no connection.
type nodeLister func(ctx context.Context, cluster client.ObjectKey) ([]corev1.Node, error)

// readState reads what the rules need: plan Secrets and Nodes.
func (r *Reconciler) readState(ctx context.Context, s *scope, from client.Reader, listNodes nodeLister) error {
	state := clusterState{deletion: s.deletion(), refused: s.refused, inputs: rollout.Inputs{Now: r.Now()}}
	state.started = s.cluster != nil && ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false)
	secrets, err := plansecrets.ByName(ctx, from, s.key)
	if err != nil {
		return err
	}
	nodes, err := listNodes(ctx, s.key)
	if err != nil && !errors.Is(err, clustercache.ErrClusterNotConnected) {
		s.nodesErr = fmt.Errorf("listing the Nodes of the cluster: %w", err)
	}
	state.connected, state.unlisted = err == nil, s.nodesErr != nil
	matched := machinestate.NewNodes(nodes)
	for _, m := range s.machines {
		matched.Know(m.machine)
	}
	for _, m := range s.machines {
		// A report that cannot be decoded leaves the state of the plan unknown, as if there were none.
		m.state, _, _ = machinestate.Of(m.machine, m.bootstrap, plansecrets.Of(m.bootstrap, secrets))
		m.node, m.taken = matched.Of(m.machine), matched.Taken(m.machine)
		if state.connected {
			m.state.ReadNode(m.node)
		}
		// A moved cluster has lost its status. A control plane machine that others could join has had an API.
		state.started = state.started || m.state.ControlPlane && m.state.JoinURL != ""
		state.inputs.Machines = append(state.inputs.Machines, m.state)
		state.restoring = cmp.Or(state.restoring, m.machine.Annotations[rkev1.RestoringAnnotation])
	}
	state.inputs.OrphanedMembers = matched.OrphanedMembers()
	if state.abandonedAt = abandonedAt(s.machines); !state.abandonedAt.IsZero() {
		expected, err := etcdExpected(ctx, s.key, from)
		if err == nil && !expected {
			expected, err = poolExpected(ctx, s.cluster, from)
		}
		if err != nil {
			return err
		}
		if expected {
			state.abandonedAt = time.Time{}
			s.requeueAfter = abandonTimeout // MachineDeployments are not watched
		}
	}
	s.state = state
	return nil
}

// etcdExpected reports whether a MachineDeployment of the cluster asks for etcd machines. Cluster API may not have been able to create them
// yet, and they can take over the data.
func etcdExpected(ctx context.Context, cluster client.ObjectKey, from client.Reader) (bool, error) {
	var list clusterv1.MachineDeploymentList
	err := from.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the cluster's MachineDeployments: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(d clusterv1.MachineDeployment) bool {
		return d.DeletionTimestamp.IsZero() && d.Spec.Template.Labels[rkev1.EtcdRoleLabel] == "true" && ptr.Deref(d.Spec.Replicas, 1) > 0
	}), nil
}

// poolExpected reports whether a machine pool of the Cluster of provisioning.cattle.io asks for etcd machines. Its MachineDeployment may be
// being deleted, by a user for instance: the pool gets another one when the machines of that are gone.
func poolExpected(ctx context.Context, cluster *clusterv1.Cluster, from client.Reader) (bool, error) {
	if cluster == nil || !ownership.OfProvisioningCluster(cluster, cluster.Name) {
		return false, nil
	}
	owner := &provisioningv1.Cluster{}
	found, err := objects.Get(ctx, from, client.ObjectKeyFromObject(cluster), owner)
	if err != nil || !found || !owner.DeletionTimestamp.IsZero() || owner.Spec.RKEConfig == nil {
		return false, err
	}
	return slices.ContainsFunc(owner.Spec.RKEConfig.MachinePools, func(p provisioningv1.RKEMachinePool) bool {
		return p.EtcdRole && p.DesiredQuantity() > 0
	}), nil
}

// abandonedAt is when the last etcd or control plane machine was deleted; zero while one stays.
func abandonedAt(members []*member) (last time.Time) {
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

// cachedNodes lists the Nodes that Cluster API has cached, and watches them.
func (r *Reconciler) cachedNodes(ctx context.Context, key client.ObjectKey) ([]corev1.Node, error) {
	return clusternodes.List(ctx, r.ClusterCache, key, clusternodes.Watch{
		Name: controllerName + "-nodes", Controller: r.controller, Request: ctrl.Request{NamespacedName: key}, Changed: nodeChanged,
	})
}

// liveNodes lists the Nodes past the cache.
func (r *Reconciler) liveNodes(ctx context.Context, key client.ObjectKey) ([]corev1.Node, error) {
	reader, err := r.ClusterCache.GetUncachedClient(ctx, key)
	if err != nil {
		return nil, err
	}
	return clusternodes.Read(ctx, reader)
}

// nodesTimeout is how long it may take to list Nodes by a new connection. client-go repeats a stream ten times if the server asks for it,
// each time with the timeout of the client.
const nodesTimeout = 10 * time.Second

// nodesByNewConnection lists the Nodes by a connection that is closed afterwards. The one that Cluster API keeps may lead, through a load
// balancer, to the API server beside the very member that was removed: it has no etcd any more, so it never sees a change, and still seems
// healthy. What the cluster answers is limited, since it may be hostile.
func (r *Reconciler) nodesByNewConnection(ctx context.Context, key client.ObjectKey) ([]corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	cached, err := r.ClusterCache.GetRESTConfig(ctx, key)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(cached)
	if config.Dial == nil {
		config.Dial = (&net.Dialer{}).DialContext // client-go shares no connections of a config with a Dial
	}
	config.Timeout = 5 * time.Second
	redirect.Restrict(config)
	tunnelaccess.LimitBodies(config, tunnelaccess.MaxBody)
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to the cluster: %w", err)
	}
	defer connection.CloseIdleConnections()
	api, err := corev1client.NewForConfigAndClient(config, connection)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to the cluster: %w", err)
	}
	body, err := api.RESTClient().Get().Resource("nodes").SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var nodes []corev1.Node
	whole, in := metav1.ListMeta{}, limitedjson.NewDecoder(body)
	err = in.List(&whole, func() error {
		nodes = append(nodes, corev1.Node{})
		return errors.Join(in.Decode(&nodes[len(nodes)-1]), clusternodes.CheckCount(len(nodes)))
	})
	if err == nil && (whole.ResourceVersion == "" || whole.Continue != "") {
		err = errors.New("the cluster answers with no list of Nodes, or an incomplete one")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Nodes of the cluster: %w", err)
	}
	return nodes, nil
}
