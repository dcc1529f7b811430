package rkecontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
)

// readReferences reads the Secrets and ConfigMaps that plans contain.
func (r *Reconciler) readReferences(ctx context.Context, s *scope) (err error) {
	if s.objects, err = r.readObjects(ctx, s); err != nil {
		return err
	}
	if s.pullSecrets, err = r.readPullSecrets(ctx); err != nil {
		return err
	}
	s.bootstrapSecrets, err = r.readBootstrapSecrets(ctx, s)
	return err
}

// readObjects reads the Secrets and ConfigMaps that the cluster refers to. Missing ones are left out.
func (r *Reconciler) readObjects(ctx context.Context, s *scope) (render.Objects, error) {
	objects := render.Objects{}
	for _, ref := range render.References(s.controlPlane.Spec) {
		key := client.ObjectKey{Namespace: cmp.Or(ref.Namespace, s.controlPlane.Namespace), Name: ref.Name}
		object, err := r.readObject(ctx, ref.Kind, key)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", ref.Kind, key, err)
		}
		objects[ref] = object
	}
	return objects, nil
}

// readPullSecrets reads the hub's credentials for its system default registry. Missing ones, and those of another type, are left out.
func (r *Reconciler) readPullSecrets(ctx context.Context) ([]render.Object, error) {
	var objects []render.Object
	for _, name := range r.Settings.PullSecrets {
		key := client.ObjectKey{Namespace: r.Settings.SystemNamespace, Name: name}
		object, err := r.readObject(ctx, render.KindSecret, key)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading pull Secret %s: %w", key, err)
		}
		if err == nil && object.Type == string(corev1.SecretTypeDockerConfigJson) {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func (r *Reconciler) readObject(ctx context.Context, kind string, key client.ObjectKey) (render.Object, error) {
	if kind == render.KindSecret {
		secret, err := r.objects.Secret(ctx, r.Cache, r.Client, key)
		if err != nil {
			return render.Object{}, err
		}
		forbidden, err := r.forbidden(ctx, secret)
		if err != nil {
			return render.Object{}, err
		}
		return render.Object{
			Type: string(secret.Type), Data: secret.Data, Forbidden: forbidden,
			AuthorizedFor: secret.Annotations[rkev1.AuthorizedObjectAnnotation], GrantedTo: secret.Annotations[rkev1.AuthorizedSecretAnnotation],
		}, nil
	}
	configMap, err := r.objects.ConfigMap(ctx, r.Cache, r.Client, key)
	if err != nil {
		return render.Object{}, err
	}
	object := render.Object{Data: map[string][]byte{}, AuthorizedFor: configMap.Annotations[rkev1.AuthorizedObjectAnnotation]}
	maps.Copy(object.Data, configMap.BinaryData)
	for k, v := range configMap.Data {
		object.Data[k] = []byte(v)
	}
	return object, nil
}

// forbidden says why a Secret must not be in any plan: its type, or a name by which it is a Secret of a cluster that exists; empty if it
// may.
func (r *Reconciler) forbidden(ctx context.Context, secret *corev1.Secret) (string, error) {
	if why := references.Forbidden(secret); why != "" {
		return why, nil
	}
	if why, err := r.isTokens(ctx, secret); why != "" || err != nil {
		return why, err
	}
	name, ok := references.ClusterOf(secret.Name)
	if !ok {
		return "", nil
	}
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: secret.Namespace, Name: name}, &clusterv1.Cluster{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	return "its name makes it a key or kubeconfig of Cluster " + name, nil
}

// isTokens says why a Secret must not be in any plan if its name makes it the one with the tokens of an RKEControlPlane that exists. A user
// may have restored it as another type.
func (r *Reconciler) isTokens(ctx context.Context, secret *corev1.Secret) (string, error) {
	if !references.MayHoldTokens(secret.Name) {
		return "", nil
	}
	var list rkev1.RKEControlPlaneList
	if err := r.Cache.List(ctx, &list, client.InNamespace(secret.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing RKEControlPlanes: %w", err)
	}
	for i := range list.Items {
		if name := list.Items[i].Name; rkev1.ClusterStateSecretName(name) == secret.Name {
			return "its name makes it the tokens of RKEControlPlane " + name, nil
		}
	}
	return "", nil
}

// readBootstrapSecrets reads the Secrets that a new cluster has from its start. Once it is bootstrapped there are none.
func (r *Reconciler) readBootstrapSecrets(ctx context.Context, s *scope) ([]render.BootstrapSecret, error) {
	if s.bootstrapped() {
		return nil, nil
	}
	opts := []client.ListOption{client.InNamespace(s.controlPlane.Namespace), client.UnsafeDisableDeepCopy}
	if r.manager != nil {
		opts = append(opts, client.MatchingFields{indexBootstrapSecrets: s.clusterName()})
	}
	var list corev1.SecretList
	if err := r.Cache.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("listing Secrets: %w", err)
	}
	var out []render.BootstrapSecret
	for i := range list.Items {
		meta := &list.Items[i]
		if !isBootstrapSecret(meta, s.clusterName()) {
			continue
		}
		secret, err := r.objects.Secret(ctx, r.Cache, r.Client, client.ObjectKeyFromObject(meta))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", meta.Name, err)
		}
		out = append(out, render.BootstrapSecret{
			Namespace: cmp.Or(secret.Annotations[rkev1.SyncTargetNamespaceAnnotation], secret.Namespace),
			Name:      cmp.Or(secret.Annotations[rkev1.SyncTargetNameAnnotation], secret.Name),
			Type:      string(secret.Type), Data: secret.Data,
		})
	}
	slices.SortFunc(out, func(a, b render.BootstrapSecret) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

// isBootstrapSecret reports whether a Secret asks, by its annotations, to be in the cluster from its start.
func isBootstrapSecret(object client.Object, cluster string) bool {
	return slices.Contains(bootstrapSecretOf(object), cluster)
}

// bootstrapSecretOf returns the names of the clusters in which a Secret asks, by its annotations, to be from their start.
func bootstrapSecretOf(object client.Object) []string {
	if object.GetAnnotations()[rkev1.SyncBootstrapAnnotation] != "true" {
		return nil
	}
	return rkev1.SplitList(object.GetAnnotations()[rkev1.AuthorizedObjectAnnotation])
}

// prime reports whether RKE2 Prime is wanted: by the cluster's annotation, or else by the hub's settings.
func (r *Reconciler) prime(controlPlane *rkev1.RKEControlPlane) bool {
	if own, err := strconv.ParseBool(controlPlane.Annotations[rkev1.PrimeEnabledAnnotation]); err == nil {
		return own
	}
	return r.Settings.RKE2Prime
}
