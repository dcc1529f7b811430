package server

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/api/admission"
	"github.com/drover-dev/drover/hub/api/crds"
	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/util/objects"
)

// anyLoopback adds no name to the gateway's certificate, for a process without a gateway.
const anyLoopback = "127.0.0.1:0"

// prepared is what the API holds before the manager is made.
type prepared struct {
	// webhooks is how the API server reaches the webhooks, certificate what they serve with; nil with an external Cluster API.
	webhooks    admissionregistrationv1.WebhookClientConfig
	certificate *capi.Certificate
	// owners are those of the registration of the webhooks.
	owners []metav1.OwnerReference
	// identity, signer and issuer are set with the control-plane provider only.
	identity *servingcert.Identity
	signer   *signing.Signer
	issuer   *tokens.Issuer
}

// prepare installs in the API what the providers of this process need, and completes the settings.
func prepare(ctx context.Context, config *rest.Config, direct client.Client, opts *Options) (*prepared, error) {
	if err := objects.EnsureNamespace(ctx, direct, opts.Settings.SystemNamespace); err != nil {
		return nil, err
	}
	if err := checkOthers(ctx, direct, *opts); err != nil {
		return nil, err
	}
	out := &prepared{}
	restored, err := signing.ReadRestored(ctx, direct, opts.Settings.SystemNamespace)
	if err != nil {
		return nil, err
	}
	if restored.After(opts.Restored) {
		opts.Restored = restored
	}
	if out.webhooks, out.certificate, err = prepareWebhooks(ctx, direct, *opts); err != nil {
		return nil, err
	}
	if out.owners, err = owners(ctx, direct, opts.OwnerClusterRole); err != nil {
		return nil, err
	}
	if !opts.Providers.Has(provider.ControlPlane) {
		if opts.Providers.Has(provider.Bootstrap) {
			// Machines are told what to trust before they know of the gateway.
			identity, err := servingcert.Ensure(ctx, direct, opts.Settings, anyLoopback)
			if err != nil {
				return nil, fmt.Errorf("reading the gateway's certificates: %w", err)
			}
			opts.Settings.CACerts = identity.CACerts()
		}
		return out, nil
	}

	if opts.ExternalCAPI {
		if err := capi.UnregisterWebhooks(ctx, direct); err != nil {
			return nil, err
		}
	}
	if err := installDefinitions(ctx, config, direct, *opts, out.webhooks); err != nil {
		return nil, err
	}
	if out.identity, err = servingcert.Ensure(ctx, direct, opts.Settings, opts.GatewayListen); err != nil {
		return nil, fmt.Errorf("preparing the gateway's certificates: %w", err)
	}
	opts.Settings.CACerts = out.identity.CACerts()
	if err := publishSettings(ctx, direct, *opts); err != nil {
		return nil, err
	}
	if out.signer, err = signing.Ensure(ctx, direct, opts.Settings.SystemNamespace); err != nil {
		return nil, err
	}
	out.signer.SetRestored(opts.Restored)
	out.issuer, err = tokens.Ensure(ctx, direct, opts.Settings.SystemNamespace)
	return out, err
}

// installDefinitions installs the CRDs of all providers, roles and policies. The controllers of the control-plane provider work with the
// kinds of all of them; so the other providers install none, and processes of different versions do not overwrite each other's definitions.
func installDefinitions(
	ctx context.Context, config *rest.Config, direct client.Client, opts Options, webhooks admissionregistrationv1.WebhookClientConfig,
) error {
	begin := time.Now()
	if err := crds.Install(ctx, config, crds.Options{
		SkipCAPI: opts.ExternalCAPI, Conversion: conversion(webhooks), Version: opts.Version, Logger: opts.Logger,
	}); err != nil {
		return err
	}
	for _, install := range []func(context.Context, client.Client) error{grantCAPI, grantProxy, admission.Install} {
		if err := install(ctx, direct); err != nil {
			return err
		}
	}
	opts.Logger.Info("CRDs installed", "took", time.Since(begin).Round(10*time.Millisecond).String())
	return nil
}

// owners returns the ClusterRole with a name as an owner, or nothing for no name.
func owners(ctx context.Context, c client.Reader, name string) ([]metav1.OwnerReference, error) {
	if name == "" {
		return nil, nil
	}
	role := &rbacv1.ClusterRole{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, role); err != nil {
		return nil, fmt.Errorf("reading ClusterRole %s of --owner-cluster-role: %w", name, err)
	}
	return []metav1.OwnerReference{{
		APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID,
	}}, nil
}
