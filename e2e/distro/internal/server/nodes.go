package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// The annotations and the taint that a cloud controller goes by.
const (
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	providedIP    = "alpha.kubernetes.io/provided-node-ip"
)

// The annotations of the distribution's own.
var (
	externalIP = flavour.Name("*.io/external-ip")

	etcdNodeName    = flavour.Name("etcd.*.cattle.io/node-name")
	etcdNodeAddress = flavour.Name("etcd.*.cattle.io/node-address")
	etcdRemove      = flavour.Name("etcd.*.cattle.io/remove")
	etcdRemoved     = flavour.Name("etcd.*.cattle.io/removed-node-name")
)

// task is one thing to do: look after a Node, or remove the member of a Node that is gone.
type task struct{ node, gone string }

// resync is how often each Node is looked at although nothing about it has changed: etcd tells nobody when it promotes or
// removes a member.
const resync = 10 * time.Second

// watchNodes does for each Node what k3s's cloud controller does, tells on it whether its etcd member votes, and removes
// etcd members of nodes that are told to leave or are gone. All servers do so: each step may be done twice.
func (s *server) watchNodes(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(s.admin, resync)
	nodes := factory.Core().V1().Nodes()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](500*time.Millisecond,
		10*time.Second))
	context.AfterFunc(ctx, queue.ShutDown)
	look := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok {
			queue.Add(task{node: node.Name})
		}
	}
	_, _ = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if node, ok := obj.(*corev1.Node); ok && node.Annotations[etcdNodeName] != "" {
				queue.Add(task{node: node.Name, gone: node.Annotations[etcdNodeName]})
			}
		},
	})
	factory.Start(ctx.Done())
	for {
		t, over := queue.Get()
		if over {
			return
		}
		s.work(ctx, queue, nodes.Lister(), t)
	}
}

func (s *server) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[task], nodes listers.NodeLister, t task) {
	defer queue.Done(t)
	var err error
	if t.gone != "" {
		err = s.removeMember(ctx, t.gone)
	} else if node, lost := nodes.Get(t.node); lost == nil {
		err = s.lookAfter(ctx, node)
	}
	if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || errors.Is(err, errLastMember) && t.gone != "" {
		queue.Forget(t)
		return
	}
	if !apierrors.IsConflict(err) {
		s.log.Warn("Cannot look after a node, trying again", "node", t.node, "error", err)
	}
	queue.AddRateLimited(t)
}

func (s *server) lookAfter(ctx context.Context, node *corev1.Node) error {
	if err := s.initialise(ctx, node); err != nil {
		return err
	}
	if node.Annotations[etcdRemove] == "true" && node.Annotations[etcdRemoved] == "" {
		if err := s.leaveEtcd(ctx, node); err != nil {
			return err
		}
	}
	if err := s.leavePods(node); err != nil {
		return err
	}
	return s.tellMembership(ctx, node)
}

// initialise gives a new Node its addresses and provider ID and takes the taint away that kept pods off until then.
func (s *server) initialise(ctx context.Context, node *corev1.Node) error {
	if s.DisableCloudController {
		return nil
	}
	fresh := false
	var taints []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Key == uninitialized {
			fresh = true
			continue
		}
		taints = append(taints, t)
	}
	if want := addresses(node); !sameAddresses(want, node.Status.Addresses) {
		patch := map[string]any{"status": map[string]any{"addresses": want}}
		if err := s.patchNode(ctx, node.Name, types.MergePatchType, patch, "status"); err != nil {
			return err
		}
	}
	if !fresh {
		return nil
	}
	spec := map[string]any{"taints": taints}
	if node.Spec.ProviderID == "" {
		spec["providerID"] = flavour.Name("*://") + node.Name
	}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": spec}
	if err := s.patchNode(ctx, node.Name, types.MergePatchType, patch); err != nil && !apierrors.IsConflict(err) {
		return err
	}
	return nil
}

// addresses are those that a Node's kubelet and configuration have given in annotations.
func addresses(node *corev1.Node) []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, a := range []struct {
		annotation string
		kind       corev1.NodeAddressType
	}{{providedIP, corev1.NodeInternalIP}, {externalIP, corev1.NodeExternalIP}} {
		for ip := range strings.SplitSeq(node.Annotations[a.annotation], ",") {
			if ip != "" {
				out = append(out, corev1.NodeAddress{Type: a.kind, Address: ip})
			}
		}
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: node.Name})
}

func sameAddresses(a, b []corev1.NodeAddress) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// markSelf puts the roles of this server on its Node.
func (s *server) markSelf(ctx context.Context) error {
	labels, annotations := map[string]any{}, map[string]any{etcdRemove: nil, etcdRemoved: nil}
	if s.hasAPI() {
		labels["node-role.kubernetes.io/control-plane"] = "true"
	}
	if !s.DisableEtcd {
		name, err := s.etcdName()
		if err != nil {
			return err
		}
		labels["node-role.kubernetes.io/etcd"] = "true"
		annotations[etcdNodeName], annotations[etcdNodeAddress] = name, s.ips[0]
	}
	return s.patchNode(ctx, s.NodeName, types.MergePatchType,
		map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
}

func (s *server) patchNode(ctx context.Context, name string, kind types.PatchType, patch any, sub ...string) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	if _, err := s.admin.CoreV1().Nodes().Patch(ctx, name, kind, raw, metav1.PatchOptions{}, sub...); err != nil {
		return fmt.Errorf("changing Node %s: %w", name, err)
	}
	return nil
}
