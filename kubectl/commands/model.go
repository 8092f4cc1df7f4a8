// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// models are scans of nodes, in JSON, one file for each model of the simulator.
//
//go:embed models
var models embed.FS

// modelNames returns the names of the models, in order.
func modelNames() []string {
	files, err := models.ReadDir("models")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(file.Name(), ".json"))
	}
	return names
}

// modelNodes returns the objects of a number of nodes of the model with an offer. The offer is in
// the words of the label gpu.nvidia.com/offer. The error wraps [gpu.ErrNotFound] or
// [gpu.ErrInvalid].
func modelNodes(n int, model, offer, driver string) (fleet.Objects, error) {
	var objects fleet.Objects
	if err := checkNames("model", []string{model}, modelNames(), "want one of "+strings.Join(modelNames(), ", ")); err != nil {
		return objects, err
	}
	parsed, err := catalog.ParseOfferLabel(offer)
	if err != nil {
		return objects, fmt.Errorf("offer %s: %w", offer, err)
	}
	text, err := models.ReadFile(path.Join("models", model+".json"))
	if err != nil {
		return objects, err
	}
	var hardware gpu.Node
	if err := json.Unmarshal(text, &hardware); err != nil {
		return objects, err
	}
	c := catalog.New(catalog.Inputs{Settings: catalog.Settings{Pool: model}, NodeConfig: catalog.NodeConfig{Offer: parsed, Shares: catalog.ShareOffer{
		MPS: true, Smallest: catalog.DefaultSmallestShare, ServerMemory: catalog.DefaultServerMemory,
	}}})
	resources := c.Resources(hardware, nil)
	for i := range n {
		name := fmt.Sprintf("%s-%04d", model, i)
		objects.Nodes = append(objects.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for _, slice := range catalog.SlicesOf(resources, driver, name, "") {
			slice.Name, slice.Spec.Pool.Name = slice.GenerateName, name
			objects.Slices = append(objects.Slices, &slice)
		}
	}
	return objects, nil
}
