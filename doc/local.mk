dist_doc_DATA += LICENSE CONTRIBUTING.md
dist_doc_DATA += doc/predictions.md
dist_doc_DATA += doc/reports.md
dist_doc_DATA += doc/formats.md
dist_doc_DATA += doc/accuracy.md
imagesdir = $(docdir)/images
dist_images_DATA = doc/images/timeline.png
dist_doc_DATA += README.md
