package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/installer/artefact"
	"github.com/drover-dev/drover/installer/image"
	"github.com/drover-dev/drover/installer/k3s"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/progress"
	"github.com/drover-dev/drover/installer/rke2"
)

// definitions are the distributions that images can be built for.
var definitions = map[string]func() layout.Definition{"k3s": k3s.Definition, "rke2": rke2.Definition}

// buildFlags are the flags of "installer build".
type buildFlags struct {
	runtime, version string
	architectures    []string

	from, checksums, script, scriptSum string
	images                             string
	moreImages                         []string

	output outputFlags
}

const buildExample = `  # from files in a folder, into a registry
  installer build --runtime k3s --version v1.36.3+k3s1 --arch amd64 --from ./release \
    --push registry.example.com/rancher/system-agent-installer-k3s

  # from the published release, for both architectures, into an OCI layout
  installer build --runtime k3s --version v1.36.3+k3s1 --arch amd64,arm64 \
    --from https://github.com/k3s-io/k3s/releases/download/v1.36.3+k3s1 \
    --install-script ./install.sh --oci-layout ./out`

func newBuildCommand() *cobra.Command {
	flags := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build an installer image from the files of a release",
		Long: `Builds an installer image from the files of a release.

Every file is compared with the release's checksum file. The image depends on the files
alone: the same files give the same digest. docs/installer.md says which files of a k3s
or RKE2 release are wanted.`,
		Example: buildExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringVar(&flags.runtime, "runtime", "", "distribution: k3s or rke2")
	set.StringVar(&flags.version, "version", "", "version of the release, such as v1.36.3+k3s1")
	set.StringSliceVar(&flags.architectures, "arch", []string{"amd64"}, "architectures: amd64, arm64 or both with a comma")
	set.StringVar(&flags.from, "from", "", "folder or https URL that holds the files of the release")
	set.StringVar(&flags.checksums, "checksums", "", "name of the checksum file there; {arch} stands for the architecture (default sha256sum-{arch}.txt)")
	set.StringVar(&flags.script, "install-script", "", "file or https URL of the release's install.sh (default: install.sh beside the other files)")
	set.StringVar(&flags.scriptSum, "install-script-sha256", "", "sha256 of install.sh, which release checksum files do not list")
	set.StringVar(&flags.images, "images", string(image.ImagesAuto), "tarball of container images: auto (if the folder has it), always or never")
	set.StringSliceVar(&flags.moreImages, "add-images", nil, "further tarballs of container images in the release; {arch} stands for the architecture")
	flags.output.register(set, "rancher/system-agent-installer-<runtime>")
	for _, required := range []string{"runtime", "version", "from"} {
		_ = cmd.MarkFlagRequired(required)
	}
	cmd.AddCommand(newBuildClusterAgentCommand())
	return cmd
}

// run builds the images and writes them where the flags say.
func (f *buildFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	opts, err := f.options()
	if err != nil {
		return err
	}
	target, err := f.output.target(opts.Definition.Repository(), f.version, len(f.architectures))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "installer-build-")
	if err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	opts.TempDir, opts.Notes, opts.Progress = dir, stderr, &progress.Reporter{Out: stderr}
	sources := artefact.Options{TempDir: dir, Progress: opts.Progress}
	if opts.Source, err = artefact.Open(f.from, sources); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if f.script != "" {
		if opts.Script, err = f.fetchScript(ctx, sources); err != nil {
			return fmt.Errorf("--install-script: %w", err)
		}
	}
	images, err := image.Build(ctx, opts)
	if err != nil {
		return err
	}
	return target.write(ctx, images, opts.Progress, stdout)
}

var sha256Pattern = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// options checks the flags that say what is to be built.
func (f *buildFlags) options() (image.Options, error) {
	define, ok := definitions[f.runtime]
	if !ok {
		return image.Options{}, fmt.Errorf("--runtime is %q: use k3s or rke2", f.runtime)
	}
	definition := define()
	if err := definition.CheckVersion(f.version); err != nil {
		return image.Options{}, fmt.Errorf("--version: %w", err)
	}
	if err := checkArchitectures(f.architectures); err != nil {
		return image.Options{}, err
	}
	mode := image.ImagesMode(f.images)
	if mode != image.ImagesAuto && mode != image.ImagesAlways && mode != image.ImagesNever {
		return image.Options{}, fmt.Errorf("--images is %q: use auto, always or never", f.images)
	}
	if f.scriptSum != "" && !sha256Pattern.MatchString(f.scriptSum) {
		return image.Options{}, errors.New("--install-script-sha256 is not 64 hexadecimal digits")
	}
	return image.Options{
		Definition: definition, Version: f.version, Architectures: f.architectures, Checksums: f.checksums,
		ScriptSum: f.scriptSum, Images: mode, MoreImages: f.moreImages,
	}, nil
}

func checkArchitectures(architectures []string) error {
	if len(architectures) == 0 {
		return errors.New("--arch: name an architecture")
	}
	seen := map[string]bool{}
	for _, arch := range architectures {
		if err := layout.CheckArchitecture(arch); err != nil {
			return fmt.Errorf("--arch: %w", err)
		}
		if seen[arch] {
			return fmt.Errorf("--arch: %s is named twice", arch)
		}
		seen[arch] = true
	}
	return nil
}

// fetchScript gets the install script from a place of its own. From a network it must be vouched for.
func (f *buildFlags) fetchScript(ctx context.Context, opts artefact.Options) (*artefact.File, error) {
	dir, name := artefact.Split(f.script)
	source, err := artefact.Open(dir, opts)
	if err != nil {
		return nil, err
	}
	if source.Remote() && f.scriptSum == "" {
		return nil, errors.New("pass the script's checksum with --install-script-sha256 too")
	}
	file, err := source.Fetch(ctx, strings.TrimSpace(name))
	if err != nil {
		return nil, err
	}
	return &file, nil
}
