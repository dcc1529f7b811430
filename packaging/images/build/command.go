package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/installer/progress"
	"github.com/drover-dev/drover/packaging/images"
)

// flags of the command.
type flags struct {
	version, revision string
	architectures     []string
	from              string
	only              []string
	k3s, rke2         []string
	certificates      string
	license           string

	ociLayout, bundle, tarballs, documents, push string
	digests                                      string
	insecure                                     bool
	signKey                                      string
}

const example = `  # build what "make cross" has built, into OCI layouts below bin/images
  bin/build-images --version v1.2.3 --oci-layout bin/images

  # push them, and an installer image of a release in a directory
  bin/build-images --version v1.2.3 --k3s v1.36.3+k3s1=./release --push registry.example.com

  # one archive of all of them, for ctr images import and skopeo copy oci-archive:
  bin/build-images --version v1.2.3 --bundle drover-images-v1.2.3.tar

  # for a machine without a registry: ctr images import, or the images directory of k3s and RKE2
  bin/build-images --version v1.2.3 --only hub --arch amd64 --tarballs bin/tarballs`

func newCommand() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "build-images",
		Short: "Build Drover's container images",
		Long: `Builds Drover's container images without Docker: hub, system-agent, cluster-agent, and the
installers of k3s and RKE2 for given releases.

Builds are reproducible: the same programs and flags give the same digests. The time of
files and images is SOURCE_DATE_EPOCH (seconds since 1970; the default is 0).

A software bill of materials (SPDX 2.3) is attached to the image of each architecture as an
OCI 1.1 referrer, in registries and in OCI layouts.

Each image has the licenses of what is compiled into its programs in /licenses. They are read
from Go's module cache; what is missing there is downloaded.

Prints the name and digest of each image.`,
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringVar(&f.version, "version", "", "version of the programs, and the tag of the images")
	set.StringVar(&f.revision, "revision", "", "commit that the programs were built from, for the annotations")
	set.StringSliceVar(&f.architectures, "arch", []string{"amd64", "arm64"}, "architectures: amd64, arm64, or both separated by a comma")
	set.StringVar(&f.from, "from", "bin", "directory with the programs: linux-<architecture>/hub and linux-<architecture>/system-agent")
	set.StringVar(&f.license, "license", "LICENSE", "file with Drover's license, to include")
	set.StringSliceVar(&f.only, "only", nil, "build only these images: "+strings.Join(images.Names(), ", ")+", or none for installers alone")
	set.StringArrayVar(&f.k3s, "k3s", nil, "VERSION=DIRECTORY of a k3s release to build an installer image for; may be repeated")
	set.StringArrayVar(&f.rke2, "rke2", nil, "VERSION=DIRECTORY of an RKE2 release to build an installer image for; may be repeated")
	set.StringVar(&f.certificates, "ca-certificates", "",
		"PEM file of certificate authorities to include (default those of Debian's package ca-certificates)")
	set.StringVar(&f.ociLayout, "oci-layout", "", "write an OCI layout of each image below this directory")
	set.StringVar(&f.bundle, "bundle", "", "write all images into one archive, a tarball of an OCI layout")
	set.StringVar(&f.digests, "digests", "", "write the name of each image with its tag and digest into this file, one a line")
	set.StringVar(&f.tarballs, "tarballs", "",
		"write a tarball in the format of docker save of each image and architecture into this directory")
	set.StringVar(&f.documents, "sbom", "", "write an SPDX document of each image and architecture into this directory")
	set.StringVar(&f.push, "push", "", "push below this registry, or registry and path")
	set.BoolVar(&f.insecure, "insecure", false, "with --push: allow a registry with plain HTTP")
	set.StringVar(&f.signKey, "sign-key", "",
		"with --push: sign with this private key, of cosign generate-key-pair or in PEM; COSIGN_PASSWORD is its password")
	_ = cmd.MarkFlagRequired("version")
	cmd.AddCommand(newSignBlob(), newSBOM(), newNotices())
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

// run builds the images and writes them.
func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	opts, err := f.options(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	key, err := readKey(f.signKey, os.Getenv("COSIGN_PASSWORD"))
	if err != nil {
		return fmt.Errorf("--sign-key: %w", err)
	}
	if opts.License, err = os.ReadFile(f.license); err != nil {
		return fmt.Errorf("--license: %w", err)
	}
	if opts.Certificates, err = f.readCertificates(stderr); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "images-build-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	opts.TempDir, opts.Progress = dir, &progress.Reporter{Out: stderr}
	built, err := images.Build(ctx, opts)
	if err != nil {
		return err
	}
	for _, img := range built {
		if err := f.write(ctx, img, key, opts.Progress, stdout); err != nil {
			return err
		}
	}
	if f.digests != "" {
		if err := writeDigests(f.digests, built); err != nil {
			return fmt.Errorf("--digests: %w", err)
		}
	}
	if f.bundle == "" {
		return nil
	}
	if err := images.WriteBundle(ctx, f.bundle, built, opts.Created, dir); err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	_, err = fmt.Fprintln(stdout, f.bundle)
	return err
}

// readCertificates reads the certificate authorities, and says which ones of the build host it leaves out.
func (f *flags) readCertificates(stderr io.Writer) (images.Certificates, error) {
	if f.certificates != "" {
		certificates, err := images.FileCertificates(f.certificates)
		if err != nil {
			return certificates, fmt.Errorf("--ca-certificates: %w", err)
		}
		return certificates, nil
	}
	certificates, err := images.DebianCertificates("/")
	if err != nil {
		return certificates, fmt.Errorf("%w; on other systems pass --ca-certificates", err)
	}
	for _, subject := range certificates.Excluded {
		_, _ = fmt.Fprintf(stderr, "Note: a certificate authority of this machine is not included: %s\n", subject)
	}
	return certificates, nil
}

// writeDigests writes the names of images as "drover/hub:v1.2.3@sha256:...".
func writeDigests(file string, built []images.Image) error {
	var lines strings.Builder
	for _, img := range built {
		digest, err := img.Index.Digest()
		if err != nil {
			return fmt.Errorf("combining the architectures of %s: %w", img.Name, err)
		}
		fmt.Fprintf(&lines, "%s:%s@%s\n", img.Repository, img.Tag, digest)
	}
	return os.WriteFile(file, []byte(lines.String()), 0o644)
}

// write writes an image to all outputs, and prints a line for each file and name.
func (f *flags) write(ctx context.Context, img images.Image, key crypto.Signer, report *progress.Reporter, stdout io.Writer) error {
	digest, err := img.Index.Digest()
	if err != nil {
		return fmt.Errorf("combining the architectures of %s: %w", img.Name, err)
	}
	var lines []string
	if f.ociLayout != "" {
		dir, err := img.WriteLayout(f.ociLayout)
		if err != nil {
			return fmt.Errorf("--oci-layout: %w", err)
		}
		lines = append(lines, fmt.Sprintf("%s:%s@%s", dir, img.Tag, digest))
	}
	if f.tarballs != "" {
		files, err := img.WriteTarballs(ctx, f.tarballs)
		if err != nil {
			return fmt.Errorf("--tarballs: %w", err)
		}
		for _, file := range files {
			lines = append(lines, file+": "+img.Repository+":"+img.Tag)
		}
	}
	if f.documents != "" {
		files, err := img.WriteDocuments(f.documents)
		if err != nil {
			return fmt.Errorf("--sbom: %w", err)
		}
		lines = append(lines, files...)
	}
	if f.push != "" {
		ref, err := f.pushTo(ctx, img, key, report)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%s@%s", ref, digest))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// pushTo pushes an image, and signs it if there is a key.
func (f *flags) pushTo(ctx context.Context, img images.Image, key crypto.Signer, report *progress.Reporter) (name.Tag, error) {
	ref, err := img.Reference(f.push, f.nameOptions()...)
	if err != nil {
		return ref, fmt.Errorf("--push: %w", err)
	}
	if err := img.Push(ctx, ref, report); err != nil {
		return ref, err
	}
	if key == nil {
		return ref, nil
	}
	return ref, img.Sign(ctx, key, ref)
}

func (f *flags) nameOptions() []name.Option {
	if f.insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}
