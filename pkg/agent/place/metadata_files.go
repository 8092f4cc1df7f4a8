// SPDX-License-Identifier: Apache-2.0

package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/home"
)

// metadataFile is one of the files that upstream writes for claims:
//
//	<CDI directory>/<driver>_metadata_<claim UID>_<request>.json
//	<data directory>/dra-device-metadata/<namespace>_<claim>/<request>/metadata.json
//
// The first is a CDI spec, which mounts the second into containers. claim is empty if the file cannot be parsed, as
// after a crash of the machine. Such a file belongs to no claim.
type metadataFile struct {
	path  string
	claim types.UID
}

func (p Place) specPrefix() string { return p.DriverName + "_metadata_" }

func (p Place) specPattern() string {
	return filepath.Join(p.CDIDir, p.specPrefix()+"*.json")
}

func (p Place) filePattern() string {
	return filepath.Join(p.DataDir, home.MetadataDir, "*", "*", "metadata.json")
}

// MetadataFolder returns the path below the data directory of the folder with the metadata
// files of a claim.
func MetadataFolder(namespace, claim string) string {
	return filepath.Join(home.MetadataDir, namespace+"_"+claim)
}

// metadata returns the existing files. A directory is named after a claim and can contain
// a file of an earlier claim with that name, so metadata reads the UID from the file.
func (p Place) metadata() ([]metadataFile, error) {
	var all []metadataFile
	specs, err := filepath.Glob(p.specPattern())
	if err != nil {
		return nil, err
	}
	for _, path := range specs {
		// Neither a UID nor the name of a request has an underscore.
		uid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), p.specPrefix()), "_")
		all = append(all, metadataFile{path, types.UID(uid)})
	}
	files, err := filepath.Glob(p.filePattern())
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		owner, err := ownerOf(path)
		if err != nil {
			return nil, err
		}
		all = append(all, metadataFile{path, owner})
	}
	return all, nil
}

// ownerOf returns the UID of the claim of a metadata file: all objects in it have the same. It
// is empty if there is no such file, or it cannot be parsed.
func ownerOf(path string) (types.UID, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // it was only read
	var head struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(file).Decode(&head); err != nil {
		return "", nil
	}
	return head.Metadata.UID, nil
}

// HasMetadata reports whether the files of each request of a claim exist. It returns true if they
// cannot be read.
func (p Place) HasMetadata(c claim.Claim) bool {
	for _, d := range c.Devices {
		request := resourceclaim.BaseRequestRef(d.Request)
		owner, err := ownerOf(filepath.Join(p.DataDir, MetadataFolder(c.Namespace, c.Name), request, "metadata.json"))
		_, noSpec := os.Stat(filepath.Join(p.CDIDir, p.specPrefix()+string(c.UID)+"_"+request+".json"))
		if err == nil && owner != c.UID || errors.Is(noSpec, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// RemoveUnheld removes the metadata files of claims that are not held. It lists the files before
// the claims, because a claim is held before its files are written. No call may write
// metadata files meanwhile.
func (p Place) RemoveUnheld(held func() ([]claim.Claim, error)) error {
	files, err := p.metadata()
	if err != nil || len(files) == 0 {
		return err
	}
	claims, err := held()
	if err != nil {
		return err
	}
	isHeld := make(map[types.UID]bool, len(claims))
	for _, c := range claims {
		isHeld[c.UID] = true
	}
	var errs []error
	for _, file := range files {
		if isHeld[file.claim] {
			continue
		}
		if err := os.Remove(file.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		if dir := filepath.Dir(file.path); dir != filepath.Clean(p.CDIDir) {
			// rmdir keeps a directory that is not empty.
			_, _ = unix.Rmdir(dir), unix.Rmdir(filepath.Dir(dir))
		}
	}
	return errors.Join(errs...)
}

// RemoveMetadata removes the metadata files of all claims. It is for a node where
// no claim of the driver is held and no agent can prepare one.
func RemoveMetadata(p Place) error {
	if err := p.RemoveUnheld(func() ([]claim.Claim, error) { return nil, nil }); err != nil {
		return fmt.Errorf("remove metadata files: %w", err)
	}
	return nil
}

// WriteMetadata replaces a metadata file or its CDI spec atomically. It does not sync
// the disk: after a crash of the machine no container uses the file, and the next
// prepare writes it again. Upstream's function syncs four times per request of a claim,
// which would double the time to prepare.
//
// Concurrent calls may write the same file, for two pods with one claim.
func WriteMetadata(path string, data []byte, perm os.FileMode) (err error) {
	tmp, err := file.Open(path+strings.Replace(metadataTemporary, "*", strconv.FormatUint(rand.Uint64(), 36), 1), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Chmod(perm)
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// metadataTemporary is the pattern of the suffix of temporary files. Container runtimes
// ignore such files: they read only .json and .yaml.
const metadataTemporary = ".*.tmp"
