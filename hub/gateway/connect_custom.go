package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
)

// connectCustom connects a machine that somebody adds to a cluster by its registration command. The gateway asks for the Machine by a
// machine request, which a controller fulfils; the gateway only waits for it.
func (g *registrar) connectCustom(ctx context.Context, token *managementv3.ClusterRegistrationToken, headers http.Header) (*connection, error) {
	registration, err := parseRegistration(headers)
	if err != nil {
		return nil, err
	}
	if len(registration.roles()) == 0 {
		return nil, headerError(rkev1.HeaderRoleWorker, "a machine needs at least one of the roles etcd, control-plane and worker")
	}
	cluster, err := g.clusterOf(ctx, token)
	if err != nil {
		return nil, err
	}
	if cluster.Spec.RKEConfig == nil {
		return nil, refuse(http.StatusConflict, "the cluster %s was imported and takes no machines: add them where it was made", client.ObjectKeyFromObject(cluster))
	}
	bootstrap, err := g.knownMachine(ctx, cluster, registration)
	if errors.Is(err, errUnproven) {
		bootstrap, err = g.unprovenMachine(ctx, token, cluster, registration)
	}
	if err != nil {
		return nil, err
	}
	if bootstrap == nil {
		if err := allowsRoles(token, registration); err != nil {
			return nil, err
		}
		if err := g.unpaused(ctx, client.ObjectKeyFromObject(cluster)); err != nil {
			return nil, err
		}
		if err := g.tokens.use(ctx, token, "machine "+registration.ID); err != nil {
			return nil, err
		}
		if bootstrap, err = g.newMachine(ctx, token.Spec.ClusterName, cluster, registration); err != nil {
			return nil, err
		}
	}
	return g.credentials(ctx, bootstrap)
}

// allowsRoles refuses a machine that wants more than its registration token was made for: the command for a worker makes no server.
func allowsRoles(token *managementv3.ClusterRegistrationToken, r *registration) error {
	excluded := token.Spec.Excluded(r.roles())
	if len(excluded) == 0 {
		return nil
	}
	return refuse(http.StatusForbidden, "the registration token does not allow the role %s: spec.roles of ClusterRegistrationToken %s/%s is %s; "+
		"make a command for the roles of this machine with hub node-command", roleNames(excluded), token.Namespace, token.Name, roleNames(token.Spec.Roles))
}

func roleNames(roles []managementv3.MachineRole) string {
	names := make([]string, 0, len(roles))
	for _, role := range roles {
		names = append(names, string(role))
	}
	return strings.Join(names, ", ")
}

// clusterOf returns the Cluster that a registration token is for.
func (g *registrar) clusterOf(ctx context.Context, token *managementv3.ClusterRegistrationToken) (*provisioningv1.Cluster, error) {
	management := &managementv3.Cluster{}
	err := g.client.Get(ctx, types.NamespacedName{Name: token.Spec.ClusterName}, management)
	var owned *ownership.OwnedCluster
	if err == nil {
		owned, err = ownership.ClusterOf(ctx, g.client, management)
	}
	switch {
	case apierrors.IsNotFound(err) || err == nil && (owned == nil || owned.Provisioning == nil):
		return nil, refuse(http.StatusConflict, "the cluster %s of this registration token does not take machines: there is no Cluster behind it", token.Spec.ClusterName)
	case err != nil:
		return nil, fmt.Errorf("reading the Cluster of %s: %w", token.Spec.ClusterName, err)
	case !owned.Provisioning.DeletionTimestamp.IsZero():
		return nil, refuse(http.StatusConflict, "the cluster %s is being deleted", owned.ObjectKey)
	}
	return owned.Provisioning, nil
}

// knownMachine returns the RKEBootstrap of a machine that is back, once it has proven that it is that machine, and nil for a new one.
func (g *registrar) knownMachine(ctx context.Context, cluster *provisioningv1.Cluster, r *registration) (*rkev1.RKEBootstrap, error) {
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: rkev1.MachineRequestName(r.ID)}
	bootstrap := &rkev1.RKEBootstrap{}
	if err := g.live.Get(ctx, name, bootstrap); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading RKEBootstrap %s: %w", name, err)
	}
	if !proves(bootstrap, r.SecretHash) || bootstrap.Spec.ClusterName != cluster.Name {
		return nil, errUnproven
	}
	if !bootstrap.DeletionTimestamp.IsZero() {
		return nil, later(comeAgain, "waiting for this machine's former registration to be removed: Machine %s is being deleted", name)
	}
	if err := g.live.Get(ctx, name, &clusterv1.Machine{}); err != nil {
		if apierrors.IsNotFound(err) {
			// The hub was stopped while it made the machine: the request is made once more.
			return nil, nil
		}
		return nil, fmt.Errorf("reading Machine %s: %w", name, err)
	}
	return bootstrap, nil
}

// newMachine asks for a Machine and waits for it.
func (g *registrar) newMachine(ctx context.Context, namespace string, cluster *provisioningv1.Cluster, r *registration) (*rkev1.RKEBootstrap, error) {
	changed, cancel := g.sources.changed.subscribe(requestSubject(namespace, rkev1.MachineRequestName(r.ID)))
	defer cancel()
	request, err := g.request(ctx, namespace, r)
	if err != nil {
		return nil, err
	}
	// The cache may be behind: a request is missing in it only after it was there.
	cached := false
	for {
		if problem := request.Annotations[rkev1.MachineRequestErrorAnnotation]; problem != "" {
			g.deleteRequest(ctx, request)
			return nil, refuse(http.StatusConflict, "%s", problem)
		}
		name := types.NamespacedName{Namespace: request.Labels[rkev1.MachineNamespaceLabel], Name: request.Labels[rkev1.MachineNameLabel]}
		if name.Name != "" && name.Namespace == cluster.Namespace {
			bootstrap, err := g.bootstrapOfNew(ctx, name, request, r)
			if err == nil {
				g.deleteRequest(ctx, request)
			}
			return bootstrap, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, later(comeAgain, "waiting for the hub to make a Machine for this machine in the cluster %s/%s", cluster.Namespace, cluster.Name)
		}
		next, exists, err := g.sources.requests.GetStore().GetByKey(request.Namespace + "/" + request.Name)
		if err != nil {
			return nil, fmt.Errorf("looking up a machine request: %w", err)
		}
		if secret, ok := next.(*corev1.Secret); exists && ok && secret.UID == request.UID {
			request, cached = secret, true
		} else if cached {
			return nil, later(comeAgain, "the hub withdrew the request for this machine")
		}
	}
}

// request makes the machine request, or joins the one that is there: the machine asked before and did not wait for the answer.
func (g *registrar) request(ctx context.Context, namespace string, r *registration) (*corev1.Secret, error) {
	data, err := r.encode()
	if err != nil {
		return nil, err
	}
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rkev1.MachineRequestName(r.ID)},
		Type:       rkev1.MachineRequestSecretType,
		Data:       map[string][]byte{rkev1.MachineRequestDataKey: data},
	}
	err = g.client.Create(ctx, request, fieldOwner)
	if err == nil {
		return request, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating a machine request in %s: %w", namespace, err)
	}
	existing := &corev1.Secret{}
	if err := g.live.Get(ctx, client.ObjectKeyFromObject(request), existing); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, later(comeAgain, "the hub answered an earlier request of this machine at the same moment")
		}
		return nil, fmt.Errorf("reading a machine request in %s: %w", namespace, err)
	}
	if !sameHash(requestedHash(existing), r.SecretHash) {
		return nil, errUnproven
	}
	if string(existing.Data[rkev1.MachineRequestDataKey]) != string(data) && existing.Labels[rkev1.MachineNameLabel] == "" {
		// The machine has changed its mind, about its roles for instance.
		g.deleteRequest(ctx, existing)
		return nil, later(comeAgain, "an earlier request of this machine asked for something else and was withdrawn")
	}
	return existing, nil
}

// requestedHash is the hash of the secret that came with a machine request.
func requestedHash(request *corev1.Secret) string {
	var fields map[string][]string
	if json.Unmarshal(request.Data[rkev1.MachineRequestDataKey], &fields) != nil {
		return ""
	}
	return first(fields[rkev1.HeaderMachineSecretHash])
}

// bootstrapOfNew returns the RKEBootstrap of the Machine that a request got. It may be that of a machine that was known under another
// name: then, too, only that machine gets it.
func (g *registrar) bootstrapOfNew(ctx context.Context, name types.NamespacedName, request *corev1.Secret, r *registration) (*rkev1.RKEBootstrap, error) {
	machine, bootstrap := &clusterv1.Machine{}, &rkev1.RKEBootstrap{}
	err := g.live.Get(ctx, name, machine)
	if err == nil {
		err = g.live.Get(ctx, types.NamespacedName{Namespace: name.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, bootstrap)
	}
	if apierrors.IsNotFound(err) {
		return nil, later(comeAgain, "the Machine %s of this machine was deleted while it registered", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Machine %s and its RKEBootstrap: %w", name, err)
	}
	stored := bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]
	isNew := !machine.CreationTimestamp.Before(&request.CreationTimestamp)
	if proves(bootstrap, r.SecretHash) || isNew && stored == "" && r.SecretHash == "" {
		return bootstrap, nil
	}
	return nil, errUnproven
}

// deleteRequest removes a request that was answered. One that stays is no harm: its controller removes it in the end.
func (g *registrar) deleteRequest(ctx context.Context, request *corev1.Secret) {
	err := g.client.Delete(ctx, request, client.Preconditions{UID: &request.UID})
	if client.IgnoreNotFound(err) != nil && !isConflict(err) {
		g.log.Error(err, "Could not delete a machine request that was answered", "Secret", client.ObjectKeyFromObject(request))
	}
}

func isConflict(err error) bool { return apierrors.IsConflict(err) }
