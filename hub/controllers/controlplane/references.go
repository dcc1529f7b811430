package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/references"
	"github.com/drover-dev/drover/hub/render"
)

// readReferences reads what the plans are made of beside the specification.
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

// readObjects reads the Secrets and ConfigMaps that the cluster refers to. What does not exist is left out.
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

// readPullSecrets reads the hub's credentials for its system default registry. What does not exist, or is of another type, is left out.
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

// isPullSecret tells of a Secret with the hub's credentials for its system default registry.
func (r *Reconciler) isPullSecret(object client.Object) bool {
	return object.GetNamespace() == r.Settings.SystemNamespace && slices.Contains(r.Settings.PullSecrets, object.GetName())
}

func (r *Reconciler) readObject(ctx context.Context, kind string, key client.ObjectKey) (render.Object, error) {
	if kind == render.KindSecret {
		secret, err := r.contents.secret(ctx, r.Cache, r.Client, key)
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
	configMap, err := r.contents.configMap(ctx, r.Cache, r.Client, key)
	if err != nil {
		return render.Object{}, err
	}
	object := render.Object{Data: map[string][]byte{}, AuthorizedFor: configMap.Annotations[rkev1.AuthorizedObjectAnnotation]}
	for k, v := range configMap.BinaryData {
		object.Data[k] = v
	}
	for k, v := range configMap.Data {
		object.Data[k] = []byte(v)
	}
	return object, nil
}

// forbidden says why a Secret is given to no machine: what it is, or what its name makes of it where there is a cluster of that name.
func (r *Reconciler) forbidden(ctx context.Context, secret *corev1.Secret) (string, error) {
	if why := references.Forbidden(secret); why != "" {
		return why, nil
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

// readBootstrapSecrets reads the Secrets that the cluster is to have before anything else. Once it has started there are none.
func (r *Reconciler) readBootstrapSecrets(ctx context.Context, s *scope) ([]render.BootstrapSecret, error) {
	if s.bootstrapped() {
		return nil, nil
	}
	var list corev1.SecretList
	// Only metadata is read of them, and each change of any machine comes here until the cluster has started.
	if err := r.Cache.List(ctx, &list, client.InNamespace(s.controlPlane.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Secrets: %w", err)
	}
	var out []render.BootstrapSecret
	for i := range list.Items {
		meta := &list.Items[i]
		if !isBootstrapSecret(meta, s.clusterName()) {
			continue
		}
		secret, err := r.contents.secret(ctx, r.Cache, r.Client, client.ObjectKeyFromObject(meta))
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

// isBootstrapSecret tells of a Secret that says itself that a cluster shall have it from the start.
func isBootstrapSecret(object client.Object, cluster string) bool {
	annotations := object.GetAnnotations()
	return annotations[rkev1.SyncBootstrapAnnotation] == "true" &&
		slices.Contains(splitList(annotations[rkev1.AuthorizedObjectAnnotation]), cluster)
}

// prime tells whether the edition of RKE2 with long support is wanted: the cluster's own word, or else the hub's.
func (r *Reconciler) prime(controlPlane *rkev1.RKEControlPlane) bool {
	if own, err := strconv.ParseBool(controlPlane.Annotations[rkev1.PrimeEnabledAnnotation]); err == nil {
		return own
	}
	return r.Settings.RKE2Prime
}

// referringTo lists the control planes that make something of an object: their specification names it, or it names them.
func (r *Reconciler) referringTo(ctx context.Context, kind string, object client.Object) []ctrl.Request {
	everywhere := kind == render.KindSecret && r.isPullSecret(object)
	var list rkev1.RKEControlPlaneList
	in := client.InNamespace(object.GetNamespace())
	if everywhere {
		in = client.InNamespace(metav1.NamespaceAll)
	}
	if err := r.Client.List(ctx, &list, in, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		if everywhere {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			continue
		}
		refs := render.References(list.Items[i].Spec)
		ref := render.Reference{Kind: kind, Name: object.GetName()}
		qualified := render.Reference{Kind: kind, Name: object.GetName(), Namespace: object.GetNamespace()}
		if slices.Contains(refs, ref) || slices.Contains(refs, qualified) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	if object.GetAnnotations()[rkev1.SyncBootstrapAnnotation] == "true" {
		for _, name := range splitList(object.GetAnnotations()[rkev1.AuthorizedObjectAnnotation]) {
			requests = append(requests, r.ofCluster(ctx, object.GetNamespace(), name)...)
		}
	}
	// A Secret for clusters of other namespaces names each with its namespace.
	for _, entry := range splitList(object.GetAnnotations()[rkev1.AuthorizedSecretAnnotation]) {
		if namespace, name, found := strings.Cut(entry, "/"); found {
			requests = append(requests, r.ofCluster(ctx, namespace, name)...)
		}
	}
	return requests
}
