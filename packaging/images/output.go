package images

import (
	"context"
	"crypto"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/drover-dev/drover/installer/oci"
	"github.com/drover-dev/drover/installer/progress"
	"github.com/drover-dev/drover/packaging/images/signature"
)

// Reference returns the image's name below a prefix, such as registry.example.com or registry.example.com/mirror.
func (i Image) Reference(prefix string, opts ...name.Option) (name.Tag, error) {
	ref, err := name.NewTag(prefix+"/"+i.Repository+":"+i.Tag, append(opts, name.StrictValidation)...)
	if err != nil {
		return name.Tag{}, fmt.Errorf("naming %s: %w", i.Name, err)
	}
	return ref, nil
}

// Push pushes the image to a registry, and attaches its documents.
func (i Image) Push(ctx context.Context, ref name.Tag, report *progress.Reporter, opts ...remote.Option) error {
	if err := oci.Push(ctx, ref, i.Index, report, opts...); err != nil {
		return err
	}
	for _, document := range i.Documents {
		if err := oci.PushArtifact(ctx, ref, document.Artifact, opts...); err != nil {
			return err
		}
	}
	return nil
}

// Sign signs what Push has pushed: the image of each architecture, the index and the documents. The signatures are those of cosign.
func (i Image) Sign(ctx context.Context, key crypto.Signer, ref name.Tag, opts ...remote.Option) error {
	digested := []interface{ Digest() (v1.Hash, error) }{i.Index}
	for n, img := range i.Architectures {
		digested = append(digested, img, i.Documents[n].Artifact)
	}
	var digests []v1.Hash
	for _, d := range digested {
		digest, err := d.Digest()
		if err != nil {
			return err
		}
		digests = append(digests, digest)
	}
	return signature.Sign(ctx, key, ref.Repository, digests, opts...)
}

// WriteDocuments writes the documents of all architectures into dir, and returns their paths.
func (i Image) WriteDocuments(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var files []string
	for n, document := range i.Documents {
		file := filepath.Join(dir, i.Name+"-"+i.Tag+"-linux-"+i.Architectures[n].Arch+".spdx.json")
		if err := os.WriteFile(file, document.SPDX, 0o644); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// WriteLayout writes the image and its documents into an OCI layout of its own, the folder of its name below dir.
func (i Image) WriteLayout(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	own := filepath.Join(dir, i.Name)
	if err := oci.WriteLayout(own, i.Tag, i.Index); err != nil {
		return "", err
	}
	var documents []v1.Image
	for _, document := range i.Documents {
		documents = append(documents, document.Artifact)
	}
	return own, oci.WriteArtifacts(own, documents)
}

// WriteTarballs writes a tarball in the format of docker save for each architecture into dir, and returns their paths. docker load, ctr
// images import and the images directories of k3s and RKE2 accept them.
func (i Image) WriteTarballs(ctx context.Context, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ref, err := name.NewTag(i.Repository + ":" + i.Tag)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, img := range i.Architectures {
		file := filepath.Join(dir, i.Name+"-"+i.Tag+"-linux-"+img.Arch+".tar")
		if err := oci.WriteTarball(ctx, file, ref, img); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
