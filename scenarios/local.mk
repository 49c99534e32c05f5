# Installed with the folders kept, since a scenario names its model and cluster by a path relative to itself.
scenariosdir = $(pkgdatadir)
dist_scenarios_DATA =
cataloguedir = $(pkgdatadir)/catalogue
dist_catalogue_DATA = scenarios/catalogue/efficiency.toml
clustersdir = $(pkgdatadir)/clusters
dist_clusters_DATA =
modelsdir = $(pkgdatadir)/models
dist_models_DATA = \
	scenarios/models/flux_dev.json \
	scenarios/models/flux_schnell.json \
	scenarios/models/sd15_unet.json \
	scenarios/models/sd21_unet.json \
	scenarios/models/sd35_large.json \
	scenarios/models/sd35_medium.json \
	scenarios/models/sd3_medium.json \
	scenarios/models/sdxl_unet.json
dist_catalogue_DATA += \
	scenarios/catalogue/devices.toml \
	scenarios/catalogue/links.toml \
	scenarios/catalogue/nccl.toml
dist_clusters_DATA += \
	scenarios/clusters/1xh200-virtual4.toml \
	scenarios/clusters/2x8xa100-ib.toml \
	scenarios/clusters/4xrtx3090-pcie.toml \
	scenarios/clusters/4xrtx4090.toml \
	scenarios/clusters/8xa100-80gb-pcie.toml \
	scenarios/clusters/8xa100-80gb-sxm.toml \
	scenarios/clusters/8xh100-sxm.toml \
	scenarios/clusters/8xh200-sxm.toml \
	scenarios/clusters/unlike-16gb-24gb.toml
dist_scenarios_DATA += \
	scenarios/flux-lora-4xrtx4090.toml \
	scenarios/sd15-4xrtx3090.toml \
	scenarios/sd3-8xh100.toml \
	scenarios/sdxl-2x8xa100-ib.toml \
	scenarios/sdxl-8xa100-pcie.toml \
	scenarios/sdxl-8xa100-sxm.toml \
	scenarios/sdxl-h200-virtual4.toml \
	scenarios/sdxl-unlike-16gb-24gb.toml \
	scenarios/study-1f1b.toml \
	scenarios/whatif-sdxl.toml
dist_clusters_DATA += scenarios/clusters/8x8xa100-80gb-ib.toml
dist_scenarios_DATA += scenarios/sdxl-8x8xa100-ib.toml
dist_clusters_DATA += scenarios/clusters/4x1rtx4090-ethernet.toml
dist_scenarios_DATA += scenarios/sdxl-4x1rtx4090-ethernet.toml
advisedir = $(pkgdatadir)/advise
dist_advise_DATA = \
	scenarios/advise/flux-lora.toml \
	scenarios/advise/pictures.toml \
	scenarios/advise/sd3-lora.toml \
	scenarios/advise/sdxl-full.toml \
	scenarios/advise/sizes.toml \
	scenarios/advise/squares.toml
dist_scenarios_DATA += scenarios/flux-batch4-8xh100.toml scenarios/flux-image-8xh100.toml
dist_models_DATA += scenarios/models/tiny_sd3.json scenarios/models/tiny_unet.json
dist_clusters_DATA += scenarios/clusters/2xcpu.toml scenarios/clusters/4xcpu.toml
dist_scenarios_DATA += scenarios/tiny-sd3-2xcpu.toml scenarios/tiny-unet-2xcpu.toml
dist_catalogue_DATA += scenarios/catalogue/kernels.toml
