package registration

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
	"github.com/drover-dev/drover/hub/util/fieldowner"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/response"
)

// connectCustom returns the RKEBootstrap of a machine that shows a registration token: the one that it proves to be, or that of a new
// Machine, which a controller creates for a machine request.
func (g *Registrar) connectCustom(
	ctx context.Context, token *managementv3.ClusterRegistrationToken, req Request,
) (*rkev1.RKEBootstrap, error) {
	registration, err := parseRegistration(req.Headers)
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
		return nil, response.Errorf(http.StatusConflict, "the cluster %s takes no machines: its Cluster has no spec.rkeConfig, so "+
			"that it is one that was created elsewhere; add machines there, or create the Cluster again with spec.rkeConfig, which may be {}",
			client.ObjectKeyFromObject(cluster))
	}
	bootstrap, err := g.knownMachine(ctx, cluster, registration)
	if errors.Is(err, errUnproven) {
		bootstrap, err = g.unprovenMachine(ctx, token, cluster, registration, req.Client)
	}
	if err != nil || bootstrap != nil {
		return bootstrap, err
	}
	if err := allowsRoles(token, registration); err != nil {
		return nil, err
	}
	if err := g.checkPaused(ctx, client.ObjectKeyFromObject(cluster)); err != nil {
		return nil, err
	}
	if err := g.checkServerToken(ctx, cluster, registration); err != nil {
		return nil, err
	}
	if err := g.Tokens.Use(ctx, token, "machine "+registration.ID); err != nil {
		return nil, err
	}
	return g.newMachine(ctx, token.Spec.ClusterName, cluster, registration)
}

// allowsRoles refuses a machine with a role that its registration token does not allow.
func allowsRoles(token *managementv3.ClusterRegistrationToken, r *registration) error {
	excluded := token.Spec.Excluded(r.roles())
	if len(excluded) == 0 {
		return nil
	}
	return response.Errorf(http.StatusForbidden,
		"the registration token does not allow the role %s: spec.roles of ClusterRegistrationToken %s/%s is %s; "+
			"run `hub node-command` for the roles of this machine", roleNames(excluded), token.Namespace, token.Name, roleNames(token.Spec.Roles))
}

func roleNames(roles []managementv3.MachineRole) string {
	names := make([]string, 0, len(roles))
	for _, role := range roles {
		names = append(names, string(role))
	}
	return strings.Join(names, ", ")
}

// clusterOf returns the Cluster that a registration token is for. One whose name another Cluster of Cluster API has takes no machines.
func (g *Registrar) clusterOf(ctx context.Context, token *managementv3.ClusterRegistrationToken) (*provisioningv1.Cluster, error) {
	owned, err := ownedCluster(ctx, g.Client, token)
	if err == nil && (owned == nil || owned.Provisioning == nil) {
		// The refusal is for good, and the cache may not have seen a Cluster that was made a moment before its token.
		owned, err = ownedCluster(ctx, g.Live, token)
	}
	switch {
	case err == nil && (owned == nil || owned.Provisioning == nil):
		return nil, response.Errorf(http.StatusConflict, "the cluster %s of this registration token takes no machines: it has no Cluster",
			token.Spec.ClusterName)
	case err != nil:
		return nil, fmt.Errorf("reading the Cluster of %s: %w", token.Spec.ClusterName, err)
	case !owned.Provisioning.DeletionTimestamp.IsZero():
		return nil, response.Errorf(http.StatusConflict, "the cluster %s is being deleted", owned.ObjectKey)
	}
	_, taken, err := ownership.ClusterAPI(ctx, g.Client, owned.Provisioning)
	if err == nil && taken != nil {
		_, taken, err = ownership.ClusterAPI(ctx, g.Live, owned.Provisioning) // as above
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the Cluster API Cluster of %s: %w", owned.ObjectKey, err)
	case taken != nil:
		return nil, response.Errorf(http.StatusConflict, "the cluster %s takes no machines: %s", owned.ObjectKey, taken.Message)
	}
	return owned.Provisioning, nil
}

// ownedCluster returns the cluster that a registration token is for, nil if a reader finds none.
func ownedCluster(
	ctx context.Context, from client.Reader, token *managementv3.ClusterRegistrationToken,
) (*ownership.OwnedCluster, error) {
	management := &managementv3.Cluster{}
	found, err := objects.Get(ctx, from, client.ObjectKey{Name: token.Spec.ClusterName}, management)
	if err != nil || !found {
		return nil, err
	}
	return ownership.ClusterOf(ctx, from, management)
}

// knownMachine returns the RKEBootstrap of a machine that registers again, once it has proven its identity, and nil for a new one.
func (g *Registrar) knownMachine(ctx context.Context, cluster *provisioningv1.Cluster, r *registration) (*rkev1.RKEBootstrap, error) {
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: rkev1.MachineRequestName(r.ID)}
	bootstrap, machine := &rkev1.RKEBootstrap{}, &clusterv1.Machine{}
	if err := g.get(ctx, name, bootstrap, nil); err != nil || bootstrap.UID == "" {
		return nil, err
	}
	if !proves(bootstrap, r.SecretHash) || bootstrap.Spec.ClusterName != cluster.Name {
		return nil, errUnproven
	}
	deleting := response.Retry(response.DefaultRetry,
		"waiting for the previous registration of this machine to be removed: Machine %s is being deleted", name)
	if !bootstrap.DeletionTimestamp.IsZero() {
		return nil, deleting
	}
	// Without a Machine the hub was stopped while it created one: the request is made once more.
	if err := g.get(ctx, name, machine, nil); err != nil || machine.UID == "" {
		return nil, err
	}
	// Its plan is deleted with the Machine, which may take long, as where its Node is drained.
	if !machine.DeletionTimestamp.IsZero() {
		return nil, deleting
	}
	return bootstrap, nil
}

// newMachine asks for a Machine by a machine request in the namespace of the management Cluster, and waits for it.
func (g *Registrar) newMachine(
	ctx context.Context, namespace string, cluster *provisioningv1.Cluster, r *registration,
) (*rkev1.RKEBootstrap, error) {
	changed, cancel := g.Secrets.SubscribeRequest(types.NamespacedName{Namespace: namespace, Name: rkev1.MachineRequestName(r.ID)})
	defer cancel()
	request, err := g.request(ctx, namespace, r)
	if err != nil {
		return nil, err
	}
	// The cache may be behind: a request was withdrawn only if it has been in the cache before.
	cached := false
	for {
		if problem := request.Annotations[rkev1.MachineRequestErrorAnnotation]; problem != "" {
			g.deleteRequest(ctx, request)
			return nil, response.Errorf(http.StatusConflict, "%s", problem)
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
			return nil, waitingForMachine(client.ObjectKeyFromObject(cluster), request)
		}
		if next := g.Secrets.MachineRequest(client.ObjectKeyFromObject(request)); next != nil && next.UID == request.UID {
			request, cached = next, true
		} else if cached {
			return nil, response.Retry(response.DefaultRetry, "the hub withdrew the request for this machine")
		}
	}
}

// waitingForMachine asks a machine to come again, with why there is no Machine for it yet, where that is known.
func waitingForMachine(cluster client.ObjectKey, request *corev1.Secret) error {
	why := request.Annotations[rkev1.MachineRequestWaitingAnnotation]
	if why != "" {
		why = ": " + why
	}
	return response.Retry(response.DefaultRetry, "waiting for the hub to create a Machine for this machine in the cluster %s%s", cluster, why)
}

// request creates the machine request, or returns the existing one of a machine that did not wait for the answer to an earlier
// registration.
func (g *Registrar) request(ctx context.Context, namespace string, r *registration) (*corev1.Secret, error) {
	data, err := r.encode()
	if err != nil {
		return nil, err
	}
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rkev1.MachineRequestName(r.ID)},
		Type:       rkev1.MachineRequestSecretType,
		Data:       map[string][]byte{rkev1.MachineRequestDataKey: data},
	}
	err = g.Client.Create(ctx, request, fieldowner.Gateway)
	if err == nil {
		return request, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating a machine request in %s: %w", namespace, err)
	}
	existing := &corev1.Secret{}
	answered := response.Retry(response.DefaultRetry, "the hub answered an earlier request of this machine at the same time")
	if err := g.get(ctx, client.ObjectKeyFromObject(request), existing, answered); err != nil {
		return nil, err
	}
	if !sameHash(requestedHash(existing), r.SecretHash) {
		return nil, errUnproven
	}
	if string(existing.Data[rkev1.MachineRequestDataKey]) != string(data) && existing.Labels[rkev1.MachineNameLabel] == "" {
		// The machine asks for something else now, other roles for instance.
		g.deleteRequest(ctx, existing)
		return nil, response.Retry(response.DefaultRetry, "an earlier request of this machine asked for something else and was withdrawn")
	}
	return existing, nil
}

// requestedHash is the hash of the machine secret in a machine request.
func requestedHash(request *corev1.Secret) string {
	var fields map[string][]string
	if json.Unmarshal(request.Data[rkev1.MachineRequestDataKey], &fields) != nil {
		return ""
	}
	return first(fields[rkev1.HeaderMachineSecretHash])
}

// bootstrapOfNew returns the RKEBootstrap of the Machine that fulfils a request. It may be that of a machine that was known by another
// name: then, too, only that machine gets it.
func (g *Registrar) bootstrapOfNew(
	ctx context.Context, name types.NamespacedName, request *corev1.Secret, r *registration,
) (*rkev1.RKEBootstrap, error) {
	machine, bootstrap := &clusterv1.Machine{}, &rkev1.RKEBootstrap{}
	deleted := response.Retry(response.DefaultRetry, "Machine %s was deleted while this machine registered", name)
	err := g.get(ctx, name, machine, deleted)
	if err == nil {
		err = g.get(ctx, types.NamespacedName{Namespace: name.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, bootstrap, deleted)
	}
	if err != nil {
		return nil, err
	}
	stored := bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]
	isNew := !machine.CreationTimestamp.Before(&request.CreationTimestamp)
	if proves(bootstrap, r.SecretHash) || isNew && stored == "" && r.SecretHash == "" {
		return bootstrap, nil
	}
	return nil, errUnproven
}

// deleteRequest removes a request that was answered. If that fails, the controller of machine requests removes it later.
func (g *Registrar) deleteRequest(ctx context.Context, request *corev1.Secret) {
	err := g.Client.Delete(ctx, request, client.Preconditions{UID: &request.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		g.Logger.Error(err, "Deleting an answered machine request failed", "Secret", client.ObjectKeyFromObject(request))
	}
}
